package dev.mtnedge.suggester;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import com.eclipsesource.json.JsonObject;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** A bundle is refused, in one sentence and before its model runs, when anything in it is not as it should be. */
public class BundleTest {
    @Rule public final TemporaryFolder temporary = new TemporaryFolder();
    private Path whole;
    private Path bundle;

    @Before
    public void copy() throws IOException {
        whole = Fixtures.path("bundle");
        bundle = temporary.getRoot().toPath().resolve("bundle");
        Fixtures.copy(whole, bundle);
    }

    @Test
    public void everyFlippedByteAndEveryMissingOrCutFileIsNamed() throws IOException {
        List<Path> files;
        try (Stream<Path> all = Files.list(whole)) {
            files = all.collect(Collectors.toList());
        }
        assertTrue(files.size() >= 7);
        for (Path file : files) {
            String name = file.getFileName().toString();
            byte[] raw = Files.readAllBytes(file);
            byte[] flipped = raw.clone();
            flipped[raw.length / 2] ^= 1;
            for (byte[] bytes : new byte[][] {flipped, Arrays.copyOf(raw, raw.length - 1), new byte[0]}) {
                Files.write(bundle.resolve(name), bytes);
                assertTrue(refusal("damaged").contains("`" + name + "` is missing, damaged or changed"));
            }
            Files.delete(bundle.resolve(name));
            assertTrue(refusal(name.equals("manifest.json") ? "no-manifest" : "damaged").contains(name));
            Files.write(bundle.resolve(name), raw);
        }
    }

    @Test
    public void aManifestThatIsNoneIsRefused() throws IOException {
        String deep = new String(new char[200_000]).replace("\0", "[");
        byte[] large = new byte[5 << 20];
        Arrays.fill(large, (byte) ' ');
        for (byte[] raw : Arrays.asList(deep.getBytes(StandardCharsets.UTF_8), large, new byte[0],
                "[]".getBytes(StandardCharsets.UTF_8), "{\"manifest_sha256\": 7}".getBytes(StandardCharsets.UTF_8),
                "{\"manifest_sha256\": \"\"}".getBytes(StandardCharsets.UTF_8),
                new byte[] {'"', (byte) 0xFF, '"'})) {
            Files.write(bundle.resolve("manifest.json"), raw);
            refusal("damaged");
        }
    }

    @Test
    public void whatTheManifestSaysMustBeKnownAndSound() throws IOException {
        check("newer-version", manifest -> manifest.set("format_version", 2));
        check("damaged", manifest -> manifest.set("format_version", "1"));
        check("wrong-kind", manifest -> manifest.set("kind", "dataset"));
        check("wrong-kind", manifest -> manifest.set("files", "none"));
        check("bad-manifest", manifest -> manifest.remove("model"));
        check("bad-manifest", manifest -> section(manifest, "model").set("heads", 3));
        check("bad-manifest", manifest -> section(manifest, "model").set("max_queries", 1));
        check("bad-manifest", manifest -> section(manifest, "model").set("memory", "some"));
        check("bad-manifest", manifest -> section(manifest, "decoding").remove("beam"));
        check("bad-manifest", manifest -> section(manifest, "decoding").set("min_probability_suggest", 1.5));
        check("bad-manifest", manifest -> section(manifest, "decoding").set("mix_complete", new JsonObject()));
        check("damaged", manifest -> section(manifest, "files").set("blocklist.txt", "whole"));
        check("damaged", manifest -> section(manifest, "files").set("blocklist.txt", new JsonObject()));
        for (String file : Arrays.asList("completions.list", "followers.list", "tokenizer.json", "blocklist.txt",
                "encode.onnx", "suggest.onnx")) {
            check("incomplete", manifest -> section(manifest, "files").remove(file));
        }
    }

    @Test
    public void aNameThatLeavesTheBundleIsRefused() throws IOException {
        JsonObject[] entry = new JsonObject[1];
        Sealed.manifest(bundle, manifest -> entry[0] = section(section(manifest, "files"), "blocklist.txt"));
        for (String name : Arrays.asList("../bundle/blocklist.txt", bundle + "/blocklist.txt", "a/../blocklist.txt",
                "..\\blocklist.txt")) {
            check("damaged", manifest -> section(manifest, "files").set(name, entry[0]));
        }
        Files.delete(bundle.resolve("blocklist.txt"));
        Files.createSymbolicLink(bundle.resolve("blocklist.txt"), whole.resolve("blocklist.txt"));
        assertTrue(refusal("damaged").contains("blocklist.txt"));
    }

    @Test
    public void aFileThatIsSomethingElseIsRefusedWhateverItsHash() throws IOException {
        byte[] garbage = "garbage".getBytes(StandardCharsets.UTF_8);
        String deep = new String(new char[200_000]).replace("\0", "{\"a\":");
        String hashes = "mtn-edge blocklist of salted hashes: 00112233445566778899aabbccddeeff\n1 sex\n";
        checkFile("bad-graph", "suggest.onnx", garbage);
        checkFile("bad-completions", "completions.list", garbage);
        checkFile("bad-completions", "followers.list", new byte[0]);
        checkFile("bad-tokenizer", "tokenizer.json", garbage);
        checkFile("bad-tokenizer", "tokenizer.json", deep.getBytes(StandardCharsets.UTF_8));
        checkFile("damaged", "tokenizer.json", new byte[] {(byte) 0xC3});
        checkFile("bad-blocklist", "blocklist.txt", hashes.getBytes(StandardCharsets.UTF_8));
    }

    @Test
    public void aListThatLeadsAstrayIsAFaultOfTheLibrary() throws Exception {
        byte[] list = Files.readAllBytes(whole.resolve("completions.list"));
        for (int at = list.length - 60; at < list.length; at++) {
            list[at] = (byte) 0x85;
        }
        Sealed.write(bundle, "completions.list", list);
        try (Suggester suggester = Suggester.open(new FolderSource(bundle.toFile()))) {
            SuggesterException fault =
                    assertThrows(SuggesterException.class, () -> suggester.session().suggest("сколько стоит", 8));
            assertEquals("failed", fault.code());
        }
    }

    @Test
    public void bytesOnTheHeapDoAsWell() throws Exception {
        BundleSource heap = name -> ByteBuffer.wrap(Files.readAllBytes(whole.resolve(name)));
        try (Suggester suggester = Suggester.open(heap)) {
            assertTrue(suggester.session().suggest("new", 5).suggestions().size() == 5);
        }
    }

    private void check(String code, Consumer<JsonObject> change) throws IOException {
        byte[] manifest = Files.readAllBytes(bundle.resolve("manifest.json"));
        Sealed.manifest(bundle, change);
        refusal(code);
        Files.write(bundle.resolve("manifest.json"), manifest);
    }

    private void checkFile(String code, String name, byte[] bytes) throws IOException {
        byte[] right = Files.readAllBytes(bundle.resolve(name));
        Sealed.write(bundle, name, bytes);
        assertTrue(refusal(code).contains(name));
        Sealed.write(bundle, name, right);
    }

    private String refusal(String code) {
        SuggesterException fault = assertThrows(
                SuggesterException.class, () -> Suggester.open(new FolderSource(bundle.toFile())).close());
        assertEquals(fault.getMessage(), code, fault.code());
        assertTrue(fault.getMessage(), fault.getMessage().indexOf('\n') < 0);
        return fault.getMessage();
    }

    private static JsonObject section(JsonObject of, String name) {
        return of.get(name).asObject();
    }
}
