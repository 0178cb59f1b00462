package dev.mtnedge.keyboard;

import android.content.ContentResolver;
import android.content.Context;
import android.database.Cursor;
import android.net.Uri;
import android.provider.DocumentsContract;
import android.provider.DocumentsContract.Document;
import android.provider.OpenableColumns;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;

/** Copies what the user chose into a new folder: so many bytes at most, and never to a place outside of the folder. */
final class BundleCopy {
    static final int MOST_MEGABYTES = 64;
    static final int MOST_FILES = 100;
    private static final String MANIFEST = "manifest.json";
    private static final int LONGEST_TITLE = 40;

    /** The choice is no bundle that can be kept; the message is for the user. */
    static final class Refused extends Exception {
        private static final long serialVersionUID = 1L;

        Refused(String sentence) {
            super(sentence);
        }
    }

    private final Context context;
    private final File folder;
    private long left = (long) MOST_MEGABYTES << 20;
    private int files;
    private String title = "";

    /** @param folder where the copy goes; does not exist yet. */
    BundleCopy(Context context, File folder) {
        this.context = context;
        this.folder = folder;
    }

    /** @param treeOrZip a folder's tree, whose files are copied, or a .zip file. */
    void from(Uri treeOrZip) throws Refused, IOException {
        if (DocumentsContract.isTreeUri(treeOrZip)) {
            copyTree(treeOrZip);
        } else {
            copyZip(treeOrZip);
        }
    }

    /** Where the bundle lies in the copy: an archive may hold it in one folder. */
    File root() {
        File[] inside = folder.listFiles();
        for (File each : inside == null ? new File[0] : inside) {
            if (!new File(folder, MANIFEST).isFile() && new File(each, MANIFEST).isFile()) {
                return each;
            }
        }
        return folder;
    }

    /** What the bundle is called, in letters that every file system takes. */
    String title() {
        String plain = title.replaceAll("\\.zip$", "").replaceAll("[^\\p{L}\\p{N}_-]+", "-").replaceAll("^-+|-+$", "");
        String cut = plain.substring(0, plain.offsetByCodePoints(0,
                Math.min(LONGEST_TITLE, plain.codePointCount(0, plain.length()))));
        return cut.isEmpty() ? "bundle" : cut;
    }

    private void copyTree(Uri tree) throws Refused, IOException {
        String id = DocumentsContract.getTreeDocumentId(tree);
        title = displayName(DocumentsContract.buildDocumentUriUsingTree(tree, id));
        Map<String, Uri> found = filesIn(tree, id);
        if (!found.containsKey(MANIFEST)) {
            throw new Refused(context.getString(R.string.bundle_no_manifest));
        }
        for (Map.Entry<String, Uri> file : found.entrySet()) {
            try (InputStream stream = open(file.getValue())) {
                copy(file.getKey(), stream);
            }
        }
    }

    private Map<String, Uri> filesIn(Uri tree, String id) throws IOException {
        Map<String, Uri> found = new LinkedHashMap<>();
        String[] columns = {Document.COLUMN_DOCUMENT_ID, Document.COLUMN_DISPLAY_NAME, Document.COLUMN_MIME_TYPE};
        Uri children = DocumentsContract.buildChildDocumentsUriUsingTree(tree, id);
        try (Cursor cursor = resolver().query(children, columns, null, null, null)) {
            if (cursor == null) {
                throw new FileNotFoundException(String.valueOf(tree));
            }
            while (cursor.moveToNext()) {
                if (!Document.MIME_TYPE_DIR.equals(cursor.getString(2))) {
                    found.put(cursor.getString(1), DocumentsContract.buildDocumentUriUsingTree(tree, cursor.getString(0)));
                }
            }
        }
        return found;
    }

    private void copyZip(Uri zip) throws Refused, IOException {
        title = displayName(zip);
        try (ZipInputStream stream = new ZipInputStream(open(zip))) {
            for (ZipEntry entry = stream.getNextEntry(); entry != null; entry = stream.getNextEntry()) {
                if (!entry.isDirectory()) {
                    copy(entry.getName(), stream);
                }
            }
        }
    }

    private void copy(String name, InputStream from) throws Refused, IOException {
        if (++files > MOST_FILES) {
            throw tooLarge();
        }
        File file = place(name);
        byte[] buffer = new byte[1 << 16];
        try (OutputStream to = new FileOutputStream(file)) {
            for (int count = from.read(buffer); count >= 0; count = from.read(buffer)) {
                left -= count;
                if (left < 0) {
                    throw tooLarge();
                }
                to.write(buffer, 0, count);
            }
        }
    }

    /** The file of a name that came from outside, which must lie in the folder and be new. */
    private File place(String name) throws Refused, IOException {
        String slashed = "/" + name + "/";
        boolean plain = !name.isEmpty() && !name.startsWith("/") && name.indexOf('\\') < 0 && name.indexOf('\0') < 0
                && !slashed.contains("/../") && !slashed.contains("/./") && !slashed.contains("//");
        File file = new File(folder, name);
        File parent = file.getParentFile();
        if (!plain || !(parent.isDirectory() || parent.mkdirs()) || file.exists()) {
            throw new Refused(context.getString(R.string.bundle_bad_name, name));
        }
        return file;
    }

    private String displayName(Uri uri) {
        String[] columns = {OpenableColumns.DISPLAY_NAME};
        try (Cursor cursor = resolver().query(uri, columns, null, null, null)) {
            String name = cursor != null && cursor.moveToFirst() ? cursor.getString(0) : null;
            return name == null ? "" : name;
        }
    }

    private InputStream open(Uri uri) throws IOException {
        InputStream stream = resolver().openInputStream(uri);
        if (stream == null) {
            throw new FileNotFoundException(uri.toString());
        }
        return stream;
    }

    private ContentResolver resolver() {
        return context.getContentResolver();
    }

    private Refused tooLarge() {
        return new Refused(context.getString(R.string.bundle_too_large, MOST_MEGABYTES, MOST_FILES));
    }
}
