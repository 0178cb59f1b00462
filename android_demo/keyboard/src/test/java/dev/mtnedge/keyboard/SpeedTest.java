package dev.mtnedge.keyboard;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import dev.mtnedge.suggester.FolderSource;
import dev.mtnedge.suggester.Suggester;
import java.io.File;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;

/** A key never waits for the model, however slow it is. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35, qualifiers = "w411dp-h891dp-port-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
public class SpeedTest {
    private static final int KEYS = 600;
    private static final double MOST_MILLISECONDS = 5;

    @Test
    public void whileTheModelIsStillBeingOpened() {
        CountDownLatch gate = new CountDownLatch(1);
        File bundle = Bundles.good();
        try (Phone phone = new Phone(() -> {
            StripTest.awaitGate(gate);
            return Suggester.open(new FolderSource(bundle));
        })) {
            check(phone);
        } finally {
            gate.countDown();
        }
    }

    @Test
    public void whileTheModelSearchesForever() throws Exception {
        try (Phone phone = Phone.with(Bundles.slow())) {
            check(phone);
        }
    }

    /** A whole key press on the main thread: finger down and up, the field, and reading it again. */
    private static void check(Phone phone) {
        phone.search();
        double[] milliseconds = new double[KEYS];
        String letters = "hotels";
        for (int key = 0; key < KEYS; key++) {
            if (key % letters.length() == 0) {
                phone.setText("");
            }
            long began = System.nanoTime();
            phone.type(letters.substring(key % letters.length(), key % letters.length() + 1));
            milliseconds[key] = (System.nanoTime() - began) / 1e6;
        }
        assertEquals(letters, phone.text());
        Arrays.sort(milliseconds);
        System.out.printf("key press on the main thread: p50 %.2f ms, p95 %.2f ms%n",
                milliseconds[KEYS / 2], milliseconds[KEYS * 95 / 100]);
        assertTrue(milliseconds[KEYS / 2] + " ms", milliseconds[KEYS / 2] < MOST_MILLISECONDS);
    }
}
