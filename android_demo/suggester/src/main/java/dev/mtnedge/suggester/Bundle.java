package dev.mtnedge.suggester;

import com.eclipsesource.json.Json;
import com.eclipsesource.json.JsonObject;
import com.eclipsesource.json.JsonValue;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.Map;

/** A bundle of which every file is the one that its manifest describes (the format: {@code mtn_edge/folders.py}). */
final class Bundle {
    private static final String MANIFEST = "manifest.json";
    private static final int FORMAT_VERSION = 1;
    private static final int MOST_MANIFEST_BYTES = 4 << 20;
    /** Of a file that is read as text. */
    private static final int MOST_TEXT_BYTES = 64 << 20;
    private static final String ZEROS = new String(new char[64]).replace('\0', '0');
    private static final String[] SIZES = {
        "vocab_size", "d_model", "heads", "session_layers", "decoder_layers", "max_tokens", "max_queries", "levels",
    };

    /** The settings of the network. */
    final JsonObject model;
    final Decoding decoding;
    private final Map<String, ByteBuffer> files = new HashMap<>();

    /**
     * Checks the signature when there is a key, the manifest, and size and sha256 of every file.
     *
     * @param key a public key in PEM form, or null.
     */
    Bundle(BundleSource source, byte[] key) throws SuggesterException {
        byte[] raw = manifest(source);
        if (key != null) {
            checkSignature(source, raw, key);
        }
        JsonObject manifest = checked(raw);
        model = model(manifest.get("model"));
        decoding = Decoding.read(manifest.get("decoding"));
        for (JsonObject.Member file : manifest.get("files").asObject()) {
            files.put(file.getName(), checked(source, file.getName(), file.getValue()));
        }
    }

    /** A file that must be there. */
    ByteBuffer file(String name) throws SuggesterException {
        ByteBuffer file = files.get(name);
        if (file == null) {
            throw new SuggesterException("incomplete", "the bundle holds no `" + name + "`; make it again");
        }
        return file.duplicate();
    }

    /** The text of a file that must be there. */
    String text(String name) throws SuggesterException {
        ByteBuffer file = file(name);
        if (file.remaining() > MOST_TEXT_BYTES) {
            throw new SuggesterException("damaged", "`" + name + "` is larger than 64 MB; make the bundle again");
        }
        try {
            return decode(file);
        } catch (CharacterCodingException error) {
            throw new SuggesterException("damaged", "`" + name + "` is not UTF-8 text; make the bundle again", error);
        }
    }

    /** The name of a graph's file: in ONNX Runtime's own format where there is one. */
    String graph(String name) {
        return name + (files.containsKey(name + ".ort") ? ".ort" : ".onnx");
    }

    private static byte[] manifest(BundleSource source) throws SuggesterException {
        ByteBuffer raw;
        try {
            raw = source.open(MANIFEST);
        } catch (IOException | RuntimeException error) {  // a content provider may refuse
            throw new SuggesterException("no-manifest", "there is no " + MANIFEST
                    + ": this is not a bundle, or it was only half copied; name another one or copy it again", error);
        }
        return bytes(raw, MOST_MANIFEST_BYTES, MANIFEST);
    }

    private static void checkSignature(BundleSource source, byte[] manifest, byte[] key) throws SuggesterException {
        ByteBuffer signature;
        try {
            signature = source.open(Signature.FILE);
        } catch (IOException | RuntimeException error) {
            throw new SuggesterException("unsigned", "the bundle is not signed: it holds no " + Signature.FILE
                    + "; sign it with `mtn-edge export mobile --sign KEY`, or open it without a key", error);
        }
        boolean fits = signature != null && signature.remaining() == Signature.LENGTH;
        byte[] bytes = fits ? bytes(signature, Signature.LENGTH, Signature.FILE) : new byte[0];
        Signature.check(manifest, bytes, key);
    }

    private static JsonObject checked(byte[] raw) throws SuggesterException {
        JsonObject manifest;
        int version;
        try {
            manifest = Json.parse(decode(ByteBuffer.wrap(raw))).asObject();
            String digest = manifest.get("manifest_sha256").asString();
            if (digest.length() != ZEROS.length() || !digest.equals(sha256(ByteBuffer.wrap(blanked(raw, digest))))) {
                throw damaged(MANIFEST, null);
            }
            version = manifest.get("format_version").asInt();
        } catch (RuntimeException | CharacterCodingException error) {  // of the parser, of a missing or misplaced value
            throw damaged(MANIFEST, error);
        }
        if (version > FORMAT_VERSION) {
            throw new SuggesterException("newer-version", "the bundle has format version " + version + ", newer than "
                    + FORMAT_VERSION + ", the newest that is read here; update the app");
        }
        if (!manifest.getString("kind", "").equals("bundle") || !isObject(manifest.get("files"))) {
            throw new SuggesterException("wrong-kind",
                    "this is another folder of mtn-edge, not a bundle; make one with `mtn-edge quantize`");
        }
        return manifest;
    }

    /** The manifest with zeros in the place of its digest. */
    private static byte[] blanked(byte[] raw, String digest) {
        String text = new String(raw, StandardCharsets.ISO_8859_1);
        return text.replace(digest, ZEROS).getBytes(StandardCharsets.ISO_8859_1);
    }

    private static ByteBuffer checked(BundleSource source, String name, JsonValue section) throws SuggesterException {
        if (name.startsWith("/") || name.contains("\\") || ("/" + name + "/").contains("/../")) {
            throw damaged(name, null);
        }
        try {
            JsonObject entry = section.asObject();
            ByteBuffer file = source.open(name);
            if (file.remaining() != entry.get("bytes").asLong()
                    || !sha256(file).equals(entry.get("sha256").asString())) {
                throw damaged(name, null);
            }
            return file.duplicate();
        } catch (IOException | RuntimeException error) {  // of the source, of a missing or misplaced value
            throw damaged(name, error);
        }
    }

    private static JsonObject model(JsonValue section) throws SuggesterException {
        try {
            JsonObject model = section.asObject();
            boolean fits = true;
            for (String size : SIZES) {
                fits &= model.get(size).asInt() >= 1;
            }
            String memory = model.get("memory").asString();
            fits = fits && model.get("d_model").asInt() % model.get("heads").asInt() == 0;
            if (fits && model.get("max_queries").asInt() >= 2 && (memory.equals("all") || memory.equals("last"))) {
                return model;
            }
        } catch (RuntimeException error) {  // of a missing or misplaced value
            throw badModel(error);
        }
        throw badModel(null);
    }

    private static SuggesterException badModel(Throwable cause) {
        return new SuggesterException("bad-manifest", "the `model` section of " + MANIFEST
                + " lacks a setting, or one is out of range; make the bundle again", cause);
    }

    private static byte[] bytes(ByteBuffer buffer, int most, String name) throws SuggesterException {
        if (buffer == null || buffer.remaining() > most) {
            throw damaged(name, null);
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    private static String decode(ByteBuffer bytes) throws CharacterCodingException {
        return StandardCharsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPORT).decode(bytes).toString();
    }

    private static String sha256(ByteBuffer bytes) {
        MessageDigest digest = Blocklist.sha256();
        digest.update(bytes.duplicate());
        return Blocklist.toHex(digest.digest());
    }

    private static boolean isObject(JsonValue value) {
        return value != null && value.isObject();
    }

    private static SuggesterException damaged(String name, Throwable cause) {
        return new SuggesterException("damaged", "`" + name + "` is missing, damaged or changed: it is not the file"
                + " that the manifest describes; copy the bundle again or make it again", cause);
    }
}
