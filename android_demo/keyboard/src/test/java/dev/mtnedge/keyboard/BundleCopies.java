package dev.mtnedge.keyboard;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import net.i2p.crypto.eddsa.EdDSAEngine;
import net.i2p.crypto.eddsa.EdDSAPrivateKey;
import net.i2p.crypto.eddsa.spec.EdDSANamedCurveTable;
import net.i2p.crypto.eddsa.spec.EdDSAPrivateKeySpec;

/** Copies of a bundle: archived, signed, damaged. */
final class BundleCopies {
    private static final EdDSAPrivateKeySpec KEY = key(1);

    private BundleCopies() {}

    static File copy(File bundle, File to) throws IOException {
        Files.createDirectories(to.toPath());
        for (File file : bundle.listFiles()) {
            Files.copy(file.toPath(), to.toPath().resolve(file.getName()));
        }
        return to;
    }

    /** The last byte of a file changes. */
    static File damage(File bundle, String name) throws IOException {
        Path path = bundle.toPath().resolve(name);
        byte[] bytes = Files.readAllBytes(path);
        bytes[bytes.length - 1] ^= 1;
        Files.write(path, bytes);
        return bundle;
    }

    /** Signs with the key of {@link #publicKey}. */
    static File sign(File bundle) throws IOException, GeneralSecurityException {
        EdDSAEngine engine = new EdDSAEngine(MessageDigest.getInstance("SHA-512"));
        engine.initSign(new EdDSAPrivateKey(KEY));
        byte[] signature = engine.signOneShot(Files.readAllBytes(bundle.toPath().resolve("manifest.json")));
        Files.write(bundle.toPath().resolve("manifest.sig"), signature);
        return bundle;
    }

    static String publicKey() {
        return hex(KEY.getA().toByteArray());
    }

    /** A public key that signed nothing. */
    static String otherKey() {
        return hex(key(2).getA().toByteArray());
    }

    private static EdDSAPrivateKeySpec key(int seed) {
        byte[] bytes = new byte[32];
        bytes[0] = (byte) seed;
        return new EdDSAPrivateKeySpec(bytes, EdDSANamedCurveTable.getByName("Ed25519"));
    }

    /** An archive of a bundle; {@code before} stands before each name. */
    static File zip(File bundle, File to, String before) throws IOException {
        try (ZipOutputStream archive = new ZipOutputStream(Files.newOutputStream(to.toPath()))) {
            for (File file : bundle.listFiles()) {
                archive.putNextEntry(new ZipEntry(before + file.getName()));
                Files.copy(file.toPath(), archive);
            }
        }
        return to;
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte each : bytes) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }
}
