// sarama ADDRESS TOPIC create|produce|consume COUNT
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/Shopify/sarama"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func create(address []string, topic string, config *sarama.Config) {
	admin, err := sarama.NewClusterAdmin(address, config)
	must(err)
	must(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false))
	must(admin.Close())
}

func produce(address []string, topic string, config *sarama.Config) {
	producer, err := sarama.NewSyncProducer(address, config)
	must(err)
	for begin := 0; begin < 500; begin += 50 {
		var messages []*sarama.ProducerMessage
		for i := begin; i < begin+50; i++ {
			key, value := sarama.StringEncoder(fmt.Sprintf("k%d", i%13)), sarama.StringEncoder(strconv.Itoa(i))
			messages = append(messages, &sarama.ProducerMessage{Topic: topic, Key: key, Value: value})
		}
		must(producer.SendMessages(messages))
	}
	must(producer.Close())
}

// A member prints and marks records until none is left.
type member struct {
	lock sync.Mutex // each partition has a goroutine
	left int
	stop context.CancelFunc
}

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.lock.Lock()
		if m.left > 0 {
			fmt.Println(message.Partition, message.Offset, string(message.Key), string(message.Value))
			session.MarkMessage(message, "")
			m.left--
		}
		if m.left == 0 {
			m.stop() // the marks are committed
		}
		m.lock.Unlock()
	}
	return nil
}

func consume(address []string, topic string, config *sarama.Config, count string) {
	left, err := strconv.Atoi(count)
	must(err)
	group, err := sarama.NewConsumerGroup(address, topic, config)
	must(err)
	ctx, stop := context.WithCancel(context.Background())
	m := &member{left: left, stop: stop}
	for ctx.Err() == nil {
		must(group.Consume(ctx, []string{topic}, m))
	}
	must(group.Close())
}

func main() {
	address, topic := []string{os.Args[1]}, os.Args[2]
	config := sarama.NewConfig()
	config.Version = sarama.V2_1_0_0
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	switch os.Args[3] {
	case "create":
		create(address, topic, config)
	case "produce":
		produce(address, topic, config)
	case "consume":
		consume(address, topic, config, os.Args[4])
	}
}
