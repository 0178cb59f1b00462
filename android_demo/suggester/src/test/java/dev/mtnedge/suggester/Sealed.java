package dev.mtnedge.suggester;

import com.eclipsesource.json.Json;
import com.eclipsesource.json.JsonObject;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.Consumer;

/** A copy of a bundle that somebody changed and gave a manifest that fits. */
final class Sealed {
    private static final String ZEROS = new String(new char[64]).replace('\0', '0');

    private Sealed() {}

    /** Writes other bytes in the place of a file, and its size and hash into the manifest. */
    static void write(Path bundle, String name, byte[] bytes) throws IOException {
        Files.write(bundle.resolve(name), bytes);
        JsonObject entry = new JsonObject().add("bytes", bytes.length).add("sha256", sha256(bytes));
        manifest(bundle, manifest -> manifest.get("files").asObject().set(name, entry));
    }

    /** Changes the manifest and seals it. */
    static void manifest(Path bundle, Consumer<JsonObject> change) throws IOException {
        Path file = bundle.resolve("manifest.json");
        String text = new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
        JsonObject manifest = Json.parse(text).asObject().set("manifest_sha256", ZEROS);
        change.accept(manifest);
        String sealed = manifest.toString();
        byte[] raw = sealed.getBytes(StandardCharsets.UTF_8);
        Files.write(file, sealed.replace(ZEROS, sha256(raw)).getBytes(StandardCharsets.UTF_8));
    }

    private static String sha256(byte[] bytes) {
        return Blocklist.toHex(Blocklist.sha256().digest(bytes));
    }
}
