import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.internals.Exit;

/** Works off commands with Kafka's own client and tools, as programs.py describes. */
public class Program {
    private static final int SECONDS = 60;
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final int NONE = -1;

    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", RangeAssignor.class.getName(),
        "cooperative-sticky", CooperativeStickyAssignor.class.getName());

    private static int firstCode;

    private final PrintStream answers;
    private final BufferedReader commands;

    private Program(InputStream input, PrintStream output) {
        answers = output;
        commands = new BufferedReader(new InputStreamReader(input, StandardCharsets.UTF_8));
    }

    public static void main(String[] arguments) throws IOException {
        Program program = new Program(System.in, new PrintStream(System.out, false, StandardCharsets.UTF_8));
        System.setOut(System.err);
        Exit.setExitProcedure((code, message) -> {
            firstCode = firstCode == NONE ? code : firstCode;
            throw new Exited(); // Some tools catch it, and end again.
        });
        program.run();
        Runtime.getRuntime().halt(0); // Some tools leave threads.
    }

    private void run() throws IOException {
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("answer", work(JSON.readTree(line)));
            } catch (ExecutionException error) {
                answer.put("error", error.getCause().toString());
            } catch (Exception error) {
                error.printStackTrace();
                answer.put("error", error.toString());
            }
            say(JSON.writeValueAsString(answer));
        }
    }

    private Object work(JsonNode command) throws Exception {
        switch (command.get("do").asText()) {
            case "produce":
                return produce(command);
            case "consume":
                return consume(command);
            case "group":
                return group(command);
            case "create":
                return create(command);
            case "manage":
                return manage(command);
            case "delete":
                return delete(command);
            case "tool":
                return tool(command);
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private synchronized void say(String line) {
        answers.print(line + "\n");
        answers.flush();
    }

    private static Properties properties(JsonNode command) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", command.get("address").asText());
        properties.put("reconnect.backoff.max.ms", "200");
        return properties;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] content) {
        return content == null ? null : new String(content, StandardCharsets.UTF_8);
    }

    private Object produce(JsonNode command) throws Exception {
        Properties properties = properties(command);
        properties.put("compression.type", command.get("codec").asText());
        properties.put("acks", command.get("acks").asText());
        properties.put("enable.idempotence", command.get("idempotent").asText());
        properties.put("linger.ms", "5");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            String topic = command.get("topic").asText();
            for (JsonNode record : command.get("records")) {
                sent.add(producer.send(new ProducerRecord<>(topic, bytes(record.get(0)), bytes(record.get(1)))));
                if (sent.size() % command.get("burst").asInt() == 0) {
                    Thread.sleep(command.get("pause_ms").asInt());
                }
                if (sent.size() % command.get("wait_every").asInt() == 0) {
                    producer.flush();
                }
            }
            producer.flush();
        }
        List<Object> acknowledged = new ArrayList<>();
        for (int number = 0; number < sent.size(); number++) {
            RecordMetadata found = sent.get(number).get(SECONDS, TimeUnit.SECONDS);
            acknowledged.add(List.of(number, found.partition(), found.offset()));
        }
        return acknowledged;
    }

    private static List<TopicPartition> partitions(JsonNode command) {
        return IntStream.range(0, command.get("partitions").asInt())
            .mapToObj(number -> new TopicPartition(command.get("topic").asText(), number))
            .collect(Collectors.toList());
    }

    private Object consume(JsonNode command) throws Exception {
        Properties properties = properties(command);
        properties.put("fetch.max.wait.ms", "100");
        List<Object> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = partitions(command);
            consumer.assign(partitions);
            JsonNode from = command.get("from");
            if (from.isNumber()) {
                Map<TopicPartition, Long> times = new HashMap<>();
                partitions.forEach(each -> times.put(each, from.asLong()));
                Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
                for (Map.Entry<TopicPartition, OffsetAndTimestamp> each : consumer.offsetsForTimes(times).entrySet()) {
                    OffsetAndTimestamp place = each.getValue();
                    consumer.seek(each.getKey(), place == null ? ends.get(each.getKey()) : place.offset());
                }
            } else if (from.asText().equals("earliest")) {
                consumer.seekToBeginning(partitions);
            } else {
                consumer.seekToEnd(partitions);
            }
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
            while (found.size() < command.get("count").asInt() && System.nanoTime() < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    List<Object> row = new ArrayList<>(List.of(record.partition(), record.offset()));
                    row.add(text(record.key()));
                    row.add(text(record.value()));
                    found.add(row);
                }
            }
        }
        return found;
    }

    private Object group(JsonNode command) throws Exception {
        Properties properties = properties(command);
        properties.put("group.id", command.get("group").asText());
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("max.poll.records", "20");
        properties.put("fetch.max.wait.ms", "50");
        properties.put("metadata.max.age.ms", "1000");
        properties.put("group.protocol", command.get("protocol").asText());
        if (command.get("protocol").asText().equals("classic")) {
            properties.put("session.timeout.ms", command.get("session_ms").asText());
            properties.put("heartbeat.interval.ms", "200");
        }
        if (!command.get("assignor").asText().isEmpty()) {
            properties.put("partition.assignment.strategy", ASSIGNORS.get(command.get("assignor").asText()));
        }
        if (!command.get("instance_id").asText().isEmpty()) {
            properties.put("group.instance.id", command.get("instance_id").asText());
        }
        Thread ends = new Thread(() -> {
            try {
                commands.readLine();
            } catch (IOException error) {
                error.printStackTrace();
            }
        });
        ends.setDaemon(true);
        ends.start();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            String topic = command.get("topic").asText();
            ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                    TreeSet<Integer> numbers = new TreeSet<>();
                    consumer.assignment().forEach(each -> numbers.add(each.partition()));
                    String all = numbers.stream().map(String::valueOf).collect(Collectors.joining(","));
                    say("A " + System.nanoTime() + " " + all);
                }
            };
            if (topic.startsWith("^")) {
                consumer.subscribe(new SubscriptionPattern(topic), listener);
            } else {
                consumer.subscribe(List.of(topic), listener);
            }
            while (ends.isAlive()) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(50));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    say("R " + System.nanoTime() + " " + record.partition() + " " + record.offset() + " "
                        + text(record.value()));
                }
                if (!records.isEmpty()) {
                    try {
                        consumer.commitSync();
                    } catch (KafkaException error) {
                        System.err.println(error); // Fenced, or the broker is away: it is delivered again.
                    }
                }
            }
        }
        return "left";
    }

    private Object create(JsonNode command) throws Exception {
        Map<String, String> configs = JSON.convertValue(command.get("configs"), JSON.getTypeFactory()
            .constructMapType(HashMap.class, String.class, String.class));
        try (Admin admin = Admin.create(properties(command))) {
            NewTopic topic = new NewTopic(
                command.get("topic").asText(), command.get("partitions").asInt(), (short) 1);
            admin.createTopics(List.of(topic.configs(configs))).all().get();
        }
        return null;
    }

    private static void alter(Admin admin, String topic, String name, String value) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    private Object manage(JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, Object> report = new HashMap<>();
        try (Admin admin = Admin.create(properties(command))) {
            alter(admin, topic, "retention.ms", command.get("retention_ms").asText());
            try {
                alter(admin, topic, "nonsense", "1");
            } catch (ExecutionException error) {
                report.put("refusal", Errors.forException(error.getCause()).code());
            }
            report.put("configs", admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().stream()
                .filter(each -> !each.isDefault())
                .collect(Collectors.toMap(ConfigEntry::name, ConfigEntry::value)));
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(command.get("partitions").asInt())))
                .all().get();
            report.put("partitions",
                admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            TopicPartition first = new TopicPartition(topic, 0);
            Map<TopicPartition, RecordsToDelete> places = Map.of(first, RecordsToDelete.beforeOffset(2),
                new TopicPartition(topic, 1), RecordsToDelete.beforeOffset(-1));
            Map<Integer, Long> marks = new HashMap<>();
            for (var each : admin.deleteRecords(places).lowWatermarks().entrySet()) {
                marks.put(each.getKey().partition(), each.getValue().get().lowWatermark());
            }
            report.put("low_watermarks", marks);
            report.put("nodes", admin.describeCluster().nodes().get().stream()
                .map(node -> node.host() + ":" + node.port()).collect(Collectors.toList()));
            Map<String, Map<Integer, Long>> directories = new HashMap<>();
            for (Map.Entry<String, LogDirDescription> each :
                    admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).entrySet()) {
                Map<Integer, Long> sizes = new HashMap<>();
                each.getValue().replicaInfos().forEach((place, replica) -> {
                    if (place.topic().equals(topic)) {
                        sizes.put(place.partition(), replica.size());
                    }
                });
                directories.put(each.getKey(), sizes);
            }
            report.put("log_dirs", directories);
            List<Object> producers = new ArrayList<>();
            for (ProducerState each :
                    admin.describeProducers(List.of(first)).partitionResult(first).get().activeProducers()) {
                producers.add(List.of(each.producerId(), each.lastSequence()));
            }
            report.put("producers", producers);
            var latest = admin.listOffsets(Map.of(first, OffsetSpec.maxTimestamp())).partitionResult(first).get();
            report.put("latest", List.of(latest.offset(), latest.timestamp() > 0));
        }
        return report;
    }

    private Object delete(JsonNode command) throws Exception {
        try (Admin admin = Admin.create(properties(command))) {
            admin.deleteTopics(List.of(command.get("topic").asText())).all().get();
        }
        return null;
    }

    /** Runs a command line tool in this process, since a new one would take a second to start. */
    private Object tool(JsonNode command) throws Exception {
        List<String> arguments = new ArrayList<>();
        command.get("arguments").forEach(each -> arguments.add(each.asText()));
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        InputStream input = System.in;
        PrintStream before = System.out;
        firstCode = NONE;
        try (PrintStream shown = new PrintStream(output, true, StandardCharsets.UTF_8)) {
            System.setOut(shown);
            System.setIn(new ByteArrayInputStream(bytes(command.get("input"))));
            Class.forName(command.get("tool").asText()).getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exited)) {
                throw error;
            }
        } finally {
            System.setOut(before);
            System.setIn(input);
        }
        return List.of(Math.max(firstCode, 0), output.toString(StandardCharsets.UTF_8));
    }

    private static class Exited extends RuntimeException {
    }
}
