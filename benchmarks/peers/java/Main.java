import java.util.*;
import java.util.concurrent.atomic.*;
import java.util.function.ObjIntConsumer;

/** Measures one timer system: Main SYSTEM WORKLOAD. ../system.go and ../c/main.c do the same. */
public class Main {
    static final int MILLION = 1_000_000;
    static final long MS = 1_000_000, MINUTE = 60_000 * MS, DAY = 1440 * MINUTE, HOUR = 60 * MINUTE;
    static final Runnable NOOP = () -> {};
    static final com.sun.management.OperatingSystemMXBean SYSTEM =
        (com.sun.management.OperatingSystemMXBean) java.lang.management.ManagementFactory.getOperatingSystemMXBean();
    static Subject s;

    static Subject make(String name) throws Exception {
        return switch (name) {
            case "jdk.Scheduled" -> new Scheduled(false);
            case "jdk.Scheduled+remove" -> new Scheduled(true);
            case "jdk.Timer" -> new UtilTimer();
            case "netty" -> new Netty();
            default -> throw new IllegalArgumentException(name);
        };
    }

    /** The CPU of the whole process, the JIT and the collector included. Its steps are 10 ms. */
    static long cpu() { return SYSTEM.getProcessCpuTime(); }

    static void report(String work, String unit, double v) { System.out.printf(Locale.ROOT, "%s %s %.3f%n", work, unit, v); }

    static long delay(SplittableRandom r) { return r.nextLong(MINUTE, DAY); }

    /** Runs op on all threads for the time given; reports its cost unless it is the warm-up, whose work is null. */
    static void loop(String work, long d, int threads, ObjIntConsumer<SplittableRandom> op) throws Exception {
        AtomicLong total = new AtomicLong();
        long c = cpu(), begin = System.nanoTime();
        List<Thread> all = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            int thread = t;
            all.add(new Thread(() -> {
                SplittableRandom r = new SplittableRandom(begin + thread * 77);
                long n = 0;
                for (; System.nanoTime() - begin < d; n += 64) for (int i = 0; i < 64; i++) op.accept(r, thread);
                total.addAndGet(n);
            }));
            all.get(t).start();
        }
        for (Thread t : all) t.join();
        s.settle();
        if (work != null) report(work, "cpu-ns/op", (cpu() - c) / (double) total.get());
    }

    static void repeat(String work, int threads, ObjIntConsumer<SplittableRandom> op) throws Exception {
        loop(null, 500 * MS, threads, op);
        loop(work, 400 * MS, threads, op);
    }

    static void fill() throws Exception {
        SplittableRandom r = new SplittableRandom(1);
        for (int i = 0; i < MILLION; i++) s.add(i, delay(r), NOOP);
        s.settle();
    }

    static void add() throws Exception {
        s.keep(MILLION + 1);
        ObjIntConsumer<SplittableRandom> same = (r, t) -> {
            s.add(MILLION, delay(r), NOOP);
            s.cancel(MILLION);
        };
        repeat("add0", 1, same);
        fill();
        repeat("add1M", 1, same);
        repeat("random", 1, (r, t) -> {
            int i = r.nextInt(MILLION);
            s.cancel(i);
            s.add(i, delay(r), NOOP);
        });
        repeat("threads", 2, (r, t) -> {
            int i = t * MILLION / 2 + r.nextInt(MILLION / 2);
            s.cancel(i);
            s.add(i, delay(r), NOOP);
        });
    }

    /** Starts n timers due within the spread, all later than the last start; returns the time that a start took. */
    static long burst(boolean tell, int n, long spread, long cost) throws Exception {
        final int every = 16;
        s.keep(1);
        System.gc();
        long[] late = new long[(n + every - 1) / every];
        AtomicLong done = new AtomicLong(), ended = new AtomicLong();
        long c = cpu(), begin = System.nanoTime();
        long first = begin + 300 * MS + 3 * n * cost, last = first + spread;
        Runnable count = () -> {
            if (done.incrementAndGet() == n) ended.set(System.nanoTime() - last);
        };
        for (int i = 0; i < n; i++) {
            long due = first + spread * i / n;
            Runnable f = count;
            int j = i / every;
            if (i % every == 0) f = () -> { late[j] = System.nanoTime() - due; count.run(); };
            s.add(0, due - System.nanoTime(), f);
        }
        long now = System.nanoTime(), added = cpu();
        while (ended.get() == 0) Thread.sleep(5);
        long used = cpu();
        if (!tell) return (now - begin) / n;
        report("fire", "cpu-ns/timer", (used - c) / (double) n);
        report("fire", "firing-ns/timer", (used - added) / (double) n);
        Arrays.sort(late);
        report("fire", "p99-ms", late[(int) (late.length * 99L / 100)] / 1e6);
        report("fire", "last-ms", ended.get() / 1e6);
        return 0;
    }

    /** Counts those of 20,000 timers of whole milliseconds that run sooner than their delay. */
    static void early() throws Exception {
        final int n = 20_000;
        s.keep(1);
        SplittableRandom r = new SplittableRandom(3);
        AtomicInteger done = new AtomicInteger(), early = new AtomicInteger();
        for (int i = 0; i < n; i++) {
            long d = (1 + r.nextInt(500)) * MS;
            if (i % 10 == 0) java.util.concurrent.locks.LockSupport.parkNanos(100_000);
            long due = System.nanoTime() + d;
            s.add(0, d, () -> {
                if (System.nanoTime() < due) early.incrementAndGet();
                done.incrementAndGet();
            });
        }
        while (done.get() < n) Thread.sleep(1);
        report("early", "early", early.get());
    }

    static double live() throws Exception {
        System.gc();
        Thread.sleep(50);
        System.gc();
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    static void addAndCancel(int n) throws Exception {
        for (int i = 0; i < n; i++) {
            s.add(0, HOUR, NOOP);
            s.cancel(0);
        }
        s.settle();
    }

    /** What is held of a million that were canceled one by one, and the bytes of a pending timer. */
    static void memory() throws Exception {
        s.keep(MILLION);
        addAndCancel(2000);
        double before = live();
        addAndCancel(MILLION);
        double between = live();
        report("left", "MB", (between - before) / 1e6);
        fill();
        report("memory", "B/timer", (live() - between) / MILLION);
    }

    static void idle(String work) throws Exception {
        Thread.sleep(300);
        long c = cpu();
        Thread.sleep(1500);
        report(work, "cpu-ms/s", (cpu() - c) / 1.5 / MS);
    }

    public static void main(String[] args) throws Exception {
        s = make(args[0]);
        switch (args[1]) {
            case "add" -> add();
            case "fire" -> {
                long cost = 1000; // guessed, for the first warm-up
                for (int i = 0; i < 4; i++) cost = burst(false, 200_000, 200 * MS, cost);
                burst(true, MILLION, 1000 * MS, cost);
            }
            case "early" -> early();
            case "memory" -> memory();
            case "idle" -> { s.keep(MILLION); s.add(0, HOUR, NOOP); idle("idle"); fill(); idle("idle1M"); }
        }
        Runtime.getRuntime().halt(0);
    }
}
