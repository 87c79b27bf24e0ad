import java.io.BufferedReader;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.TreeSet;
import java.util.zip.CRC32C;
import java.util.zip.CheckedOutputStream;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/**
 * Reads log files with Kafka's own classes: their paths come on standard input, one a line; for each one a line of JSON
 * goes to standard output. The digest is over all that Kafka sees in batches and records; kafka_reader.py computes the
 * same over what our reader sees.
 */
public class ReadLog {
    private final CRC32C crc = new CRC32C();
    private final DataOutputStream seen =
        new DataOutputStream(new CheckedOutputStream(OutputStream.nullOutputStream(), crc));
    private final TreeSet<String> codecs = new TreeSet<>();
    private long batches = 0;
    private long records = 0;
    private long nextOffset = -1;

    public static void main(String[] arguments) throws IOException {
        BufferedReader paths = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String path = paths.readLine(); path != null; path = paths.readLine()) {
            ReadLog file = new ReadLog();
            String error = "";
            try {
                file.read(new File(path));
            } catch (Exception found) {
                error = found.toString();
            }
            System.out.println(file.line(error));
        }
    }

    private void read(File path) throws IOException {
        try (FileRecords file = FileRecords.open(path, false)) {
            long position = 0;
            for (FileChannelRecordBatch batch : file.batches()) {
                batch.ensureValid();
                take(batch);
                position += batch.sizeInBytes();
            }
            check(position == path.length(), "the last whole batch ends at byte " + position + " of " + path.length());
        }
    }

    private void take(RecordBatch batch) throws IOException {
        check(batch.baseOffset() >= nextOffset, "offset " + batch.baseOffset() + " where " + nextOffset + " should be");
        seen.writeLong(batch.baseOffset());
        seen.writeLong(batch.lastOffset());
        seen.writeInt(batch.partitionLeaderEpoch());
        seen.writeLong(batch.producerId());
        seen.writeShort(batch.producerEpoch());
        seen.writeInt(batch.baseSequence());
        seen.writeLong(batch.maxTimestamp());
        seen.writeByte(batch.compressionType().id);
        seen.writeBoolean(batch.timestampType() == TimestampType.LOG_APPEND_TIME);
        seen.writeBoolean(batch.isTransactional());
        seen.writeBoolean(batch.isControlBatch());
        codecs.add(batch.compressionType().name);
        batches++;
        nextOffset = batch.baseOffset();
        for (Record record : batch) {
            record.ensureValid();
            check(record.offset() >= nextOffset && record.offset() <= batch.lastOffset(),
                "a record of offset " + record.offset() + " in the batch from " + batch.baseOffset());
            seen.writeLong(record.offset());
            seen.writeLong(record.timestamp());
            bytes(record.key());
            bytes(record.value());
            seen.writeInt(record.headers().length);
            for (Header header : record.headers()) {
                bytes(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8)));
                bytes(header.value() == null ? null : ByteBuffer.wrap(header.value()));
            }
            records++;
            nextOffset = record.offset() + 1;
        }
        nextOffset = batch.nextOffset();
    }

    private void bytes(ByteBuffer content) throws IOException {
        if (content == null) {
            seen.writeInt(-1);
            return;
        }
        byte[] copy = new byte[content.remaining()];
        content.duplicate().get(copy);
        seen.writeInt(copy.length);
        seen.write(copy);
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }

    private String line(String error) {
        String names = codecs.isEmpty() ? "" : "\"" + String.join("\",\"", codecs) + "\"";
        return String.format(
            "{\"batches\":%d,\"records\":%d,\"next_offset\":%d,\"digest\":%d,\"codecs\":[%s],\"error\":\"%s\"}",
            batches, records, nextOffset, crc.getValue(), names, error.replaceAll("[^ -~]|[\"\\\\]", "?"));
    }
}
