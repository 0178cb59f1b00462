package dev.mtnedge.suggester;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** A bundle that must be signed is opened only when it is, by the owner of the key. */
public class SignatureTest {
    private static final BigInteger ORDER =
            BigInteger.ONE.shiftLeft(252).add(new BigInteger("27742317777372353535851937790883648493"));

    @Rule public final TemporaryFolder temporary = new TemporaryFolder();

    @Test
    public void aSignedBundleOpensWithItsKeyAndWithout() throws Exception {
        Suggester.open(Fixtures.source("signed"), key("public.pem")).close();
        Suggester.open(Fixtures.source("signed")).close();
    }

    @Test
    public void anotherKeyNoSignatureAndNoKeyAreRefused() throws Exception {
        assertEquals("bad-signature", refusal(Fixtures.path("signed"), key("other.pem")));
        assertEquals("unsigned", refusal(Fixtures.path("bundle"), key("public.pem")));
        for (String pem : new String[] {"", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"}) {
            assertEquals("bad-key", refusal(Fixtures.path("signed"), new Suggester.Options().key(pem.getBytes())));
        }
    }

    @Test
    public void whatChangedAfterSigningIsRefused() throws Exception {
        Path bundle = temporary.getRoot().toPath().resolve("bundle");
        Fixtures.copy(Fixtures.path("signed"), bundle);
        Sealed.write(bundle, "blocklist.txt", new byte[0]);  // a manifest that fits, by somebody else
        Suggester.open(new FolderSource(bundle.toFile())).close();
        assertEquals("bad-signature", refusal(bundle, key("public.pem")));
    }

    @Test
    public void aSignatureOfAnotherFormIsRefused() throws Exception {
        Path bundle = temporary.getRoot().toPath().resolve("bundle");
        Fixtures.copy(Fixtures.path("signed"), bundle);
        byte[] signature = Files.readAllBytes(bundle.resolve("manifest.sig"));
        byte[] other = signature.clone();
        BigInteger second = ORDER.add(number(signature));  // the same point on the curve
        for (int at = 0; at < 32; at++) {
            other[32 + at] = second.shiftRight(8 * at).byteValue();
        }
        for (byte[] raw : new byte[][] {other, new byte[64], new byte[63], new byte[0], new byte[1 << 20]}) {
            Files.write(bundle.resolve("manifest.sig"), raw);
            assertEquals("bad-signature", refusal(bundle, key("public.pem")));
        }
    }

    private static BigInteger number(byte[] signature) {
        BigInteger number = BigInteger.ZERO;
        for (int at = 63; at >= 32; at--) {
            number = number.shiftLeft(8).or(BigInteger.valueOf(signature[at] & 0xFF));
        }
        return number;
    }

    private static Suggester.Options key(String name) throws IOException {
        return new Suggester.Options().key(Files.readAllBytes(Fixtures.path(name)));
    }

    private static String refusal(Path bundle, Suggester.Options options) {
        return assertThrows(SuggesterException.class,
                () -> Suggester.open(new FolderSource(bundle.toFile()), options).close()).code();
    }
}
