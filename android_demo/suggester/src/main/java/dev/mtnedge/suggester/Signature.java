package dev.mtnedge.suggester;

import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.spec.X509EncodedKeySpec;
import net.i2p.crypto.eddsa.EdDSAEngine;
import net.i2p.crypto.eddsa.EdDSAPublicKey;

/**
 * Who made a bundle: an Ed25519 signature (RFC 8032) of its manifest, which holds the hashes of all other files.
 *
 * <p>Android's own providers know Ed25519 from API level 33 on only, so the library {@code eddsa} checks it.
 */
final class Signature {
    static final String FILE = "manifest.sig";
    static final int LENGTH = 64;
    private static final String BEGIN = "-----BEGIN PUBLIC KEY-----";
    private static final String END = "-----END PUBLIC KEY-----";
    private static final String BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    /** The order of the curve's base point (RFC 8032, section 5.1). */
    private static final BigInteger ORDER =
            BigInteger.ONE.shiftLeft(252).add(new BigInteger("27742317777372353535851937790883648493"));

    private Signature() {}

    /**
     * Checks a signature.
     *
     * @param pem a public key as {@code openssl pkey -pubout} writes it.
     * @throws SuggesterException it is not the signature of {@code message} by the owner of the key, or that is none.
     */
    static void check(byte[] message, byte[] signature, byte[] pem) throws SuggesterException {
        boolean holds;
        try {
            EdDSAEngine engine = new EdDSAEngine(MessageDigest.getInstance("SHA-512"));
            engine.initVerify(publicKey(pem));
            // The library takes a second form of each signature too, which the RFC forbids (section 5.1.7).
            holds = signature.length == LENGTH && second(signature).compareTo(ORDER) < 0
                    && engine.verifyOneShot(message, signature);
        } catch (GeneralSecurityException | RuntimeException error) {  // of a point that is not on the curve
            holds = false;
        }
        if (!holds) {
            throw new SuggesterException("bad-signature", "the signature of the bundle is not by the given key, or its"
                    + " manifest has changed since it was signed; get the bundle again or give the right key");
        }
    }

    private static EdDSAPublicKey publicKey(byte[] pem) throws SuggesterException {
        try {
            String text = new String(pem, StandardCharsets.US_ASCII);
            int begin = text.indexOf(BEGIN) + BEGIN.length();
            int end = text.indexOf(END, begin);
            return new EdDSAPublicKey(new X509EncodedKeySpec(fromBase64(text.substring(begin, end))));
        } catch (GeneralSecurityException | RuntimeException error) {
            throw new SuggesterException("bad-key", "the given key is no Ed25519 public key in PEM form; make one with"
                    + " `openssl pkey -in PRIVATE.pem -pubout -out PUBLIC.pem`", error);
        }
    }

    /** The second half of a signature as a number. */
    private static BigInteger second(byte[] signature) {
        byte[] highestFirst = new byte[LENGTH / 2];
        for (int at = 0; at < highestFirst.length; at++) {
            highestFirst[at] = signature[LENGTH - 1 - at];
        }
        return new BigInteger(1, highestFirst);
    }

    /** Android has {@code java.util.Base64} from API level 26 on only. */
    private static byte[] fromBase64(String text) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        int bits = 0;
        int value = 0;
        for (int at = 0; at < text.length(); at++) {
            int digit = BASE64.indexOf(text.charAt(at));
            if (digit >= 0) {
                value = value << 6 | digit;
                bits += 6;
                if (bits >= 8) {
                    bits -= 8;
                    bytes.write(value >> bits);
                }
            }
        }
        return bytes.toByteArray();
    }
}
