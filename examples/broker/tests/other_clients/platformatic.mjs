// node platformatic.mjs ADDRESS TOPIC create|produce|consume COUNT|admin
import { Admin, ConfigResourceTypes, Consumer, Producer, stringDeserializers, stringSerializers } from "@platformatic/kafka";

const [address, topic, action, count] = process.argv.slice(2);
const common = { clientId: "platformatic", bootstrapBrokers: [address] };

async function withAdmin(use) {
  const admin = new Admin(common);
  await use(admin);
  await admin.close();
}

const actions = {
  create: () =>
    withAdmin((admin) => {
      const configs = [{ name: "retention.bytes", value: "1000000" }];
      return admin.createTopics({ topics: [topic], partitions: 3, replicas: 1, configs });
    }),

  async produce() {
    const producer = new Producer({ ...common, idempotent: true, serializers: stringSerializers });
    for (let begin = 0; begin < 500; begin += 50) {
      const messages = Array.from({ length: 50 }, (_, i) => ({ topic, key: `k${(begin + i) % 13}`, value: `${begin + i}` }));
      await producer.send({ acks: -1, messages });
    }
    await producer.close();
  },

  async consume() {
    const consumer = new Consumer({ ...common, groupId: topic, deserializers: stringDeserializers });
    const stream = await consumer.consume({
      topics: [topic],
      mode: "committed",
      fallbackMode: "earliest",
      autocommit: false,
    });
    let left = Number(count);
    for await (const message of stream) {
      console.log(`${message.partition} ${message.offset} ${message.key} ${message.value}`);
      await message.commit();
      if (--left === 0) break;
    }
    await consumer.close(true);
  },

  admin: () =>
    withAdmin(async (admin) => {
      const [{ configs }] = await admin.describeConfigs({
        resources: [
          { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configurationKeys: ["retention.bytes"] },
        ],
      });
      const [{ partitions }] = await admin.deleteRecords({
        topics: [{ name: topic, partitions: [{ partition: 0, offset: 10n }] }],
      });
      const before = (await admin.listTopics()).includes(topic);
      await admin.deleteTopics({ topics: [topic] });
      const after = (await admin.listTopics()).includes(topic);
      console.log(JSON.stringify([configs[0].value, Number(partitions[0].lowWatermark), before, after]));
    }),
};

await actions[action]();
