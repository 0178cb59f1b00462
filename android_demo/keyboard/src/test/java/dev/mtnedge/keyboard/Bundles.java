package dev.mtnedge.keyboard;

import static org.junit.Assume.assumeTrue;

import com.eclipsesource.json.Json;
import com.eclipsesource.json.JsonObject;
import dev.mtnedge.suggester.FolderSource;
import dev.mtnedge.suggester.Session;
import dev.mtnedge.suggester.Suggester;
import dev.mtnedge.suggester.SuggesterException;
import java.io.File;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The bundle to test with, and copies of it that something is wrong with. */
final class Bundles {
    private static final String ZEROS = new String(new char[64]).replace('\0', '0');
    private static String beginning;

    private Bundles() {}

    /** The bundle that -Dbundle names; the test is skipped when there is none. */
    static File good() {
        String folder = System.getProperty("bundle", "");
        assumeTrue("no bundle: run tests/test_android_keyboard.py, or give -Dbundle=FOLDER", !folder.isEmpty());
        return new File(folder);
    }

    /** Two letters with which most of its suggestions begin. */
    static String beginning() throws SuggesterException {
        if (beginning == null) {
            int most = 0;
            try (Suggester suggester = Suggester.open(new FolderSource(good()))) {
                Session session = suggester.session();
                for (char letter = 'h'; letter <= 'z' && most < Suggestions.COUNT; letter++) {
                    int found = session.suggest(letter + "o", Suggestions.COUNT).suggestions().size();
                    if (found > most) {
                        most = found;
                        beginning = letter + "o";
                    }
                }
            }
        }
        return beginning;
    }

    /** A copy of which one file has another byte. */
    static File damaged() throws IOException {
        Path copy = copy();
        Path file = copy.resolve("suggest.onnx");
        byte[] bytes = Files.readAllBytes(file);
        bytes[bytes.length / 2] ^= 1;
        Files.write(file, bytes);
        return copy.toFile();
    }

    /** A copy with another manifest, which fits. */
    static File changed(Consumer<JsonObject> change) throws IOException {
        Path copy = copy();
        Path file = copy.resolve("manifest.json");
        String text = new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
        JsonObject manifest = Json.parse(text).asObject().set("manifest_sha256", ZEROS);
        change.accept(manifest);
        String sealed = manifest.toString();
        Files.write(file, sealed.replace(ZEROS, sha256(sealed)).getBytes(StandardCharsets.UTF_8));
        return copy.toFile();
    }

    /** A copy that searches hundreds of times as long: no key press is answered before the next one comes. */
    static File slow() throws IOException {
        return changed(manifest -> manifest.get("decoding").asObject()
                .set("beam", 2000).set("min_probability_complete", 0).set("min_probability_suggest", 0));
    }

    private static Path copy() throws IOException {
        File from = good();
        Path copy = Files.createTempDirectory("bundle");
        try (Stream<Path> files = Files.list(from.toPath())) {
            List<Path> all = files.collect(Collectors.toList());
            for (Path file : all) {
                Files.copy(file, copy.resolve(file.getFileName()));
            }
        }
        return copy;
    }

    private static String sha256(String text) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
            return String.format("%064x", new BigInteger(1, digest));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
