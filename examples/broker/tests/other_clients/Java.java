// java Java ADDRESS TOPIC create|produce|consume COUNT|admin|restart|codecs
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Java {
  final String address, topic;

  Java(String address, String topic) {
    this.address = address;
    this.topic = topic;
  }

  Properties settings(String... pairs) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", address);
    for (int i = 0; i < pairs.length; i += 2) settings.put(pairs[i], pairs[i + 1]);
    return settings;
  }

  void create() throws Exception {
    try (Admin admin = Admin.create(settings())) {
      NewTopic wanted = new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.bytes", "1000000"));
      admin.createTopics(List.of(wanted)).all().get();
    }
  }

  KafkaProducer<String, String> producer(String... pairs) { // idempotent, with acks=all, by default
    return new KafkaProducer<>(settings(pairs), new StringSerializer(), new StringSerializer());
  }

  void produce() throws Exception {
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    try (KafkaProducer<String, String> producer = producer()) {
      for (int i = 0; i < 500; i++) {
        sent.add(producer.send(new ProducerRecord<>(topic, "k" + i % 13, "" + i)));
        if (i % 50 == 0) producer.flush();
      }
    }
    for (Future<RecordMetadata> each : sent) each.get();
  }

  KafkaConsumer<String, String> consumer(Properties settings) {
    settings.put("auto.offset.reset", "earliest");
    settings.put("enable.auto.commit", "false");
    return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
  }

  // Returns the generation of the group.
  int consume(int left, String... pairs) {
    Properties settings = settings(pairs);
    settings.put("group.id", topic);
    settings.put("group.protocol", "classic");
    try (KafkaConsumer<String, String> consumer = consumer(settings)) {
      consumer.subscribe(List.of(topic));
      while (left > 0)
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
          if (left-- == 0) break; // the rest of a batch
          System.out.println(record.partition() + " " + record.offset() + " " + record.key() + " " + record.value());
          TopicPartition partition = new TopicPartition(topic, record.partition());
          consumer.commitSync(Map.of(partition, new OffsetAndMetadata(record.offset() + 1)));
        }
      return consumer.groupMetadata().generationId();
    }
  }

  // A static member reads some records, and starts anew to read the others.
  void restart() throws Exception {
    create();
    produce();
    for (int count : new int[] {200, 300})
      System.out.println("generation " + consume(count, "group.instance.id", "one"));
  }

  void admin() throws Exception {
    try (Admin admin = Admin.create(settings())) {
      ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
      String retention =
          admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.bytes").value();
      TopicPartition partition = new TopicPartition(topic, 0);
      long low =
          admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(10))).lowWatermarks().get(partition)
              .get().lowWatermark();
      boolean before = admin.listTopics().names().get().contains(topic);
      admin.deleteTopics(List.of(topic)).all().get();
      boolean after = admin.listTopics().names().get().contains(topic);
      System.out.println("[\"" + retention + "\", " + low + ", " + before + ", " + after + "]");
    }
  }

  // Writes a compressed batch of 100 records per codec, to one partition, and searches it by time.
  void codecs() throws Exception {
    TopicPartition partition = new TopicPartition(topic, 0);
    long time = 0;
    for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd"))
      try (KafkaProducer<String, String> producer = producer("compression.type", codec, "linger.ms", "1000")) {
        for (int i = 0; i < 100; i++) producer.send(new ProducerRecord<>(topic, 0, ++time, "k", codec.repeat(20)));
      }
    try (KafkaConsumer<String, String> consumer = consumer(settings("fetch.max.wait.ms", "1"))) {
      consumer.assign(List.of(partition));
      for (long wanted = 50; wanted < time; wanted += 100) {
        consumer.seek(partition, consumer.offsetsForTimes(Map.of(partition, wanted)).get(partition).offset());
        ConsumerRecord<String, String> record = consumer.poll(Duration.ofSeconds(9)).iterator().next();
        System.out.println(record.offset() + " " + record.timestamp() + " " + record.value().length());
      }
    }
    try (Admin admin = Admin.create(settings())) {
      var latest = admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition).get();
      System.out.println(latest.offset() + " " + latest.timestamp());
    }
  }

  public static void main(String[] args) throws Exception {
    Java java = new Java(args[0], args[1]);
    switch (args[2]) {
      case "create" -> java.create();
      case "produce" -> java.produce();
      case "consume" -> java.consume(Integer.parseInt(args[3]));
      case "admin" -> java.admin();
      case "restart" -> java.restart();
      case "codecs" -> java.codecs();
    }
  }
}
