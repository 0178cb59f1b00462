package dev.mtnedge.keyboard;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import com.eclipsesource.json.JsonObject;
import dev.mtnedge.suggester.FolderSource;
import dev.mtnedge.suggester.Suggester;
import dev.mtnedge.suggester.SuggestionWorker;
import java.io.File;
import java.util.Collections;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;

/** Whatever is wrong with the model: the keyboard types on, and the strip says one sentence. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35, qualifiers = "w411dp-h891dp-port-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
public class FaultTest {
    @Test
    public void aDamagedBundle() throws Exception {
        File bundle = Bundles.damaged();
        check(() -> Suggester.open(new FolderSource(bundle)), "`suggest.onnx` is missing, damaged or changed");
    }

    @Test
    public void aBundleOfANewerVersion() throws Exception {
        File bundle = Bundles.changed(manifest -> manifest.set("format_version", 99));
        check(() -> Suggester.open(new FolderSource(bundle)), "the bundle has format version 99");
    }

    @Test
    public void aBundleThatIsNotSigned() {
        File bundle = Bundles.good();
        Suggester.Options key = new Suggester.Options().key(new byte[] {1});
        check(() -> Suggester.open(new FolderSource(bundle), key), "the bundle is not signed");
    }

    @Test
    public void noBundleAtAll() {
        check(() -> Suggester.open(new FolderSource(new File("nowhere"))), "there is no manifest.json");
    }

    @Test
    public void aBundleTooLargeForTheMemory() {
        check(() -> {
            throw new OutOfMemoryError("no room");
        }, "the bundle could not be used");
    }

    @Test
    public void anOpenerThatFailsInAnyOtherWay() {
        check(() -> {
            throw new IllegalStateException("no storage");
        }, "no storage");
    }

    private static void check(SuggestionWorker.Opener opener, String sentence) {
        try (Phone phone = new Phone(opener)) {
            phone.search();
            phone.type("hot");
            phone.await(() -> !phone.notice().isEmpty());
            String said = phone.notice();
            assertTrue(said, said.startsWith("No suggestions: ") && said.contains(sentence));
            assertEquals(-1, said.indexOf('\n'));
            phone.type("els");
            phone.tap("ENTER");
            phone.tap("SPACE");
            phone.tap("DELETE");
            assertEquals("hotels", phone.text());
            assertEquals(1, phone.actions.size());
            assertEquals(Collections.emptyList(), phone.suggestions());
        }
    }

    /** The manifest promises more positions than the graph has: longer texts break it, shorter ones do not. */
    @Test
    public void aModelThatThrowsInTheMiddleOfARun() throws Exception {
        File bundle = Bundles.changed(manifest -> {
            set(manifest, "model", "max_tokens", 4000);
            set(manifest, "decoding", "max_steps", 4000);
        });
        StringBuilder tooLong = new StringBuilder();
        for (int turn = 0; turn < 60; turn++) {
            tooLong.append("q7 ");
        }
        try (Phone phone = Phone.with(bundle)) {
            phone.search();
            phone.type(Bundles.beginning());
            phone.awaitSuggestions();
            phone.setText(tooLong.toString());
            phone.await(() -> phone.notice().contains("the model failed"));
            phone.type("a");
            assertEquals(tooLong + "a", phone.text());
            phone.setText(Bundles.beginning());
            phone.awaitSuggestions();
            assertEquals("", phone.notice());
        }
    }

    private static void set(JsonObject manifest, String section, String name, int value) {
        manifest.get(section).asObject().set(name, value);
    }

    @Test
    public void aFaultThatIsOverIsForgottenInTheNextField() throws Exception {
        AtomicBoolean broken = new AtomicBoolean(true);
        File bundle = Bundles.good();
        try (Phone phone = new Phone(() -> {
            if (broken.get()) {
                throw new OutOfMemoryError("no room");
            }
            return Suggester.open(new FolderSource(bundle));
        })) {
            phone.search();
            phone.await(() -> !phone.notice().isEmpty());
            broken.set(false);
            phone.search();
            phone.awaitSuggestions();
            assertEquals("", phone.notice());
        }
    }
}
