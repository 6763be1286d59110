package org.apache.kafka.server.util.timer;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.DelayQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.server.purgatory.DelayedOperation;
import org.apache.kafka.server.purgatory.DelayedOperationKey;
import org.apache.kafka.server.purgatory.DelayedOperationPurgatory;

/**
 * The loops of bench_micro.py and bench_timers.py on Kafka's classes: {@code Driver watch1|watch3|check|timer|wheel
 * WARM_UP_SECONDS SECONDS}. 100,000 other operations are pending.
 *
 * <p>Prints the ns of CPU time an operation: of this thread, and of the whole process, with collector and reaper.
 */
public class Driver {
    static final int BLOCK = 1_000;
    static final int OTHERS = 100_000;
    static final Random RANDOM = new Random(1);
    static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static boolean ready;
    static long completed;
    static long ended;
    static long made;

    record Key(String keyLabel) implements DelayedOperationKey {}

    static class Operation extends DelayedOperation {
        Operation(long delayMs) {
            super(delayMs);
        }

        @Override
        public void onExpiration() {}

        @Override
        public void onComplete() {
            completed++;
        }

        @Override
        public boolean tryComplete() {
            return ready && forceComplete();
        }
    }

    static class Task extends TimerTask {
        Task(long delayMs) {
            super(delayMs);
        }

        @Override
        public void run() {}
    }

    public static void main(String[] args) {
        Runnable block = block(args[0]);
        measure(block, Double.parseDouble(args[1]));
        System.out.println(measure(block, Double.parseDouble(args[2])));
        if (completed != made || ended != made) {
            throw new AssertionError(completed + " completed, " + ended + " counted, of " + made);
        }
        System.exit(0);
    }

    /** Run blocks for so many seconds of CPU time. */
    static String measure(Runnable block, double seconds) {
        long blocks = 0;
        long begin = thread();
        long all = SYSTEM.getProcessCpuTime();
        while (thread() - begin < seconds * 1e9) {
            block.run();
            blocks++;
        }
        double operations = (double) blocks * BLOCK;
        return (thread() - begin) / operations + " " + (SYSTEM.getProcessCpuTime() - all) / operations;
    }

    static long thread() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    static Runnable block(String mode) {
        return switch (mode) {
            case "watch1" -> watch(1);
            case "watch3" -> watch(3);
            case "check" -> check();
            case "timer" -> timer();
            case "wheel" -> wheel();
            default -> throw new IllegalArgumentException(mode);
        };
    }

    static DelayedOperationPurgatory<Operation> purgatory() {
        var purgatory = new DelayedOperationPurgatory<Operation>("bench", new SystemTimer("bench"), 0, 1000, true, true);
        for (int i = 0; i < OTHERS; i++) {
            purgatory.tryCompleteElseWatch(new Operation(longDelay()), List.of(new Key("other " + i)));
        }
        return purgatory;
    }

    static Runnable watch(int keysEach) {
        var purgatory = purgatory();
        List<List<Key>> watched = new ArrayList<>();
        for (int i = 0; i < BLOCK; i++) {
            List<Key> keys = new ArrayList<>();
            for (int k = 0; k < keysEach; k++) {
                keys.add(new Key(i + " " + k));
            }
            watched.add(List.copyOf(keys));
        }
        return () -> {
            for (List<Key> keys : watched) {
                purgatory.tryCompleteElseWatch(new Operation(30_000), keys);
                ready = true;
                ended += purgatory.checkAndComplete(keys.get(0));
                ready = false;
            }
            made += BLOCK;
        };
    }

    static Runnable check() {
        var purgatory = purgatory();
        Key nobody = new Key("nobody waits here");
        return () -> {
            for (int i = 0; i < BLOCK; i++) {
                ended += purgatory.checkAndComplete(nobody);
            }
        };
    }

    static Runnable timer() {
        SystemTimer timer = new SystemTimer("bench");
        for (int i = 0; i < OTHERS; i++) {
            timer.add(new Task(longDelay()));
        }
        List<Task> tasks = tasks();
        return () -> {
            for (Task task : tasks) {
                timer.add(task);
                task.cancel();
            }
        };
    }

    static Runnable wheel() {
        TimingWheel wheel = new TimingWheel(1, 20, 0, new AtomicInteger(), new DelayQueue<>());
        for (int i = 0; i < OTHERS; i++) {
            long delay = longDelay();
            wheel.add(new TimerTaskEntry(new Task(delay), delay));
        }
        List<Task> tasks = tasks();
        return () -> {
            for (Task task : tasks) {
                wheel.add(new TimerTaskEntry(task, task.delayMs));
                task.cancel();
            }
        };
    }

    static long longDelay() {
        return 3_000_000 + RANDOM.nextInt(3_000_000);
    }

    static List<Task> tasks() {
        List<Task> tasks = new ArrayList<>();
        for (int i = 0; i < BLOCK; i++) {
            tasks.add(new Task(30_000 + RANDOM.nextInt(30_000)));
        }
        return tasks;
    }
}
