// java Java ADDRESS TOPIC create|produce|consume COUNT|restart
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
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
      admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
    }
  }

  KafkaProducer<String, String> producer() { // idempotent, with acks=all, by default
    return new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer());
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

  public static void main(String[] args) throws Exception {
    Java java = new Java(args[0], args[1]);
    switch (args[2]) {
      case "create" -> java.create();
      case "produce" -> java.produce();
      case "consume" -> java.consume(Integer.parseInt(args[3]));
      case "restart" -> java.restart();
    }
  }
}
