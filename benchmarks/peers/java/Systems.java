import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import java.util.concurrent.*;

/** A timer system. Slots keep the handles; each thread has slots of its own. */
abstract class Subject {
    Object[] h = new Object[1];

    void keep(int n) { h = new Object[n]; }

    abstract void add(int slot, long nanos, Runnable f);

    abstract void cancel(int slot);

    /** Waits until the system has done the adds and cancels that it deferred, so that their CPU is counted. */
    void settle() throws Exception {}

    /** For systems with whole milliseconds: rounded up, so that an early run is the system's own fault. */
    static long millis(long nanos) { return (nanos + 999_999) / 1_000_000; }
}

/** The JDK's own, with one thread, which runs the functions, too. */
class Scheduled extends Subject {
    final ScheduledThreadPoolExecutor pool = new ScheduledThreadPoolExecutor(1);

    Scheduled(boolean remove) { pool.setRemoveOnCancelPolicy(remove); }

    void add(int i, long d, Runnable f) { h[i] = pool.schedule(f, d, TimeUnit.NANOSECONDS); }

    void cancel(int i) { ((Future<?>) h[i]).cancel(false); }
}

class UtilTimer extends Subject {
    final java.util.Timer timer = new java.util.Timer();

    void add(int i, long d, Runnable f) {
        java.util.TimerTask t = new java.util.TimerTask() { public void run() { f.run(); } };
        h[i] = t;
        timer.schedule(t, millis(d));
    }

    void cancel(int i) { ((java.util.TimerTask) h[i]).cancel(); }
}

/** With the tick and the number of slots of our wheel; Netty's own defaults are 100 ms and 512. */
class Netty extends Subject {
    final HashedWheelTimer timer = new HashedWheelTimer(1, TimeUnit.MILLISECONDS, 512);

    void add(int i, long d, Runnable f) { h[i] = timer.newTimeout(t -> f.run(), d, TimeUnit.NANOSECONDS); }

    void cancel(int i) { ((Timeout) h[i]).cancel(); }

    /** The queues keep their order: a timer that has fired was moved to the wheel after all that were added before. */
    void settle() throws Exception {
        CountDownLatch fired = new CountDownLatch(1);
        timer.newTimeout(t -> fired.countDown(), 1, TimeUnit.NANOSECONDS);
        fired.await();
    }
}
