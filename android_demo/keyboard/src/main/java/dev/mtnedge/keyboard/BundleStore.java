package dev.mtnedge.keyboard;

import android.content.Context;
import android.content.pm.ApplicationInfo;
import android.content.pm.PackageManager;
import android.content.res.AssetFileDescriptor;
import android.content.res.AssetManager;
import android.net.Uri;
import android.text.format.Formatter;
import android.util.Base64;
import dev.mtnedge.suggester.BundleSource;
import dev.mtnedge.suggester.FolderSource;
import dev.mtnedge.suggester.Suggester;
import dev.mtnedge.suggester.SuggesterException;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * The bundle in force: the one in the app's assets, or one that the user chose, copied into the app's private storage.
 *
 * <p>Everything here reads files: for a worker thread.
 */
final class BundleStore {
    static final String KEY = "dev.mtnedge.key";
    private static final String ASSETS = "bundle";
    private static final String FOLDER = "bundles";
    /** Where a bundle is copied to; no chosen bundle has such a name. */
    private static final String INCOMING = ".incoming";
    /** What stands before the 32 bytes of an Ed25519 public key in its DER form (RFC 8410, section 4). */
    private static final byte[] DER = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
    private static final int KEY_BYTES = 32;

    /** What became of an import. */
    static final class Outcome {
        /** Whether the bundle is in force now; when not, the one before still is. */
        final boolean imported;
        /** For the user. */
        final String sentence;

        Outcome(boolean imported, String sentence) {
            this.imported = imported;
            this.sentence = sentence;
        }
    }

    private BundleStore() {}

    /**
     * Opens the bundle in force.
     *
     * @throws SuggesterException it is damaged, of a newer version, or not signed with the key of the manifest.
     */
    static Suggester open(Context context) throws SuggesterException {
        String chosen = Settings.of(context).chosenBundle();
        BundleSource source = chosen == null
                ? name -> asset(context.getAssets(), name)
                : new FolderSource(new File(folder(context), chosen));
        return Suggester.open(source, options(context));
    }

    /**
     * Puts a bundle in force that the user chose with the system's picker.
     *
     * <p>It is copied whole, opened and asked once, and only then chosen. A bad one is removed, and what was in force
     * stays in force.
     *
     * @param treeOrZip a folder's tree or a .zip file, which may hold the bundle in one folder.
     */
    static synchronized Outcome importFrom(Context context, Uri treeOrZip) {
        File incoming = new File(folder(context), INCOMING);
        try {
            remove(incoming);
            BundleCopy copy = new BundleCopy(context, incoming);
            copy.from(treeOrZip);
            File root = copy.root();
            prove(context, root);
            return choose(context, root, copy.title());
        } catch (BundleCopy.Refused | SuggesterException fault) {
            return new Outcome(false, fault.getMessage());
        } catch (OutOfMemoryError error) {
            return new Outcome(false, context.getString(R.string.bundle_no_memory));
        } catch (IOException | RuntimeException error) {  // a content provider may throw anything
            return new Outcome(false, context.getString(R.string.bundle_unreadable, error.getMessage()));
        } finally {
            remove(incoming);
        }
    }

    /** Puts the bundle of the app in force again. */
    static synchronized void useBuiltIn(Context context) {
        Settings.of(context).setChosenBundle(null);
        removeOthers(context, null);
    }

    /** Reads it all and lets it answer once: a graph that cannot run is found now and not while somebody types. */
    private static void prove(Context context, File root) throws SuggesterException {
        try (Suggester suggester = Suggester.open(new FolderSource(root), options(context))) {
            suggester.session().suggest("", 1);
        }
    }

    private static Outcome choose(Context context, File root, String title) throws IOException {
        String name = title;
        for (int number = 2; new File(folder(context), name).exists(); number++) {
            name = title + "-" + number;
        }
        File place = new File(folder(context), name);
        if (!root.renameTo(place)) {
            throw new IOException(place + " cannot be written");
        }
        Settings.of(context).setChosenBundle(name);
        removeOthers(context, name);
        String size = Formatter.formatShortFileSize(context, bytes(place));
        return new Outcome(true, context.getString(R.string.bundle_imported, name, size));
    }

    /** The bundle before may still be open somewhere: its mapped files stay readable until it is closed. */
    private static void removeOthers(Context context, String kept) {
        File[] bundles = folder(context).listFiles();
        for (File bundle : bundles == null ? new File[0] : bundles) {
            if (!bundle.getName().equals(kept)) {
                remove(bundle);
            }
        }
    }

    private static File folder(Context context) {
        return new File(context.getFilesDir(), FOLDER);
    }

    private static Suggester.Options options(Context context) throws SuggesterException {
        String key = key(context);
        Suggester.Options options = new Suggester.Options();
        return key.isEmpty() ? options : options.key(pem(key));
    }

    private static String key(Context context) {
        try {
            ApplicationInfo app = context.getPackageManager()
                    .getApplicationInfo(context.getPackageName(), PackageManager.GET_META_DATA);
            return app.metaData == null ? "" : app.metaData.getString(KEY, "");
        } catch (PackageManager.NameNotFoundException error) {
            throw new IllegalStateException(error);  // of this app itself
        }
    }

    /** A public key in the form that the library reads; what is no key is given on as it is, and refused there. */
    private static byte[] pem(String hex) {
        byte[] der = Arrays.copyOf(DER, DER.length + KEY_BYTES);
        if (!hex.matches("[0-9a-fA-F]{64}")) {
            return hex.getBytes(StandardCharsets.UTF_8);
        }
        for (int at = 0; at < KEY_BYTES; at++) {
            der[DER.length + at] = (byte) Integer.parseInt(hex.substring(2 * at, 2 * at + 2), 16);
        }
        String body = Base64.encodeToString(der, Base64.NO_WRAP);
        return ("-----BEGIN PUBLIC KEY-----\n" + body + "\n-----END PUBLIC KEY-----\n")
                .getBytes(StandardCharsets.US_ASCII);
    }

    /** A file of the bundle in the APK, mapped. */
    private static ByteBuffer asset(AssetManager assets, String name) throws IOException {
        try (AssetFileDescriptor file = assets.openFd(ASSETS + "/" + name);
                FileInputStream stream = file.createInputStream()) {
            return stream.getChannel().map(FileChannel.MapMode.READ_ONLY, file.getStartOffset(), file.getLength());
        } catch (FileNotFoundException error) {
            // Android before 10 cannot open an empty asset that begins on a page: nothing to map.
            if (Arrays.asList(assets.list(ASSETS)).contains(name)) {
                return ByteBuffer.allocate(0);
            }
            throw error;
        }
    }

    private static long bytes(File folder) {
        long bytes = 0;
        File[] files = folder.listFiles();
        for (File file : files == null ? new File[0] : files) {
            bytes += file.isDirectory() ? bytes(file) : file.length();
        }
        return bytes;
    }

    private static void remove(File file) {
        File[] inside = file.listFiles();
        for (File each : inside == null ? new File[0] : inside) {
            remove(each);
        }
        file.delete();
    }
}
