package dev.mtnedge.keyboard;

import android.content.ContentProvider;
import android.content.ContentValues;
import android.database.Cursor;
import android.database.MatrixCursor;
import android.net.Uri;
import android.os.ParcelFileDescriptor;
import android.provider.DocumentsContract;
import android.provider.DocumentsContract.Document;
import java.io.File;
import java.io.FileNotFoundException;
import java.util.ArrayList;
import java.util.List;
import org.robolectric.Robolectric;

/** What the system's picker gives: a folder's tree or a file, behind a content provider. A document's id is its path. */
public final class Documents extends ContentProvider {
    private static final String AUTHORITY = "dev.mtnedge.test.documents";
    /** Names that another app could give to its documents. */
    static String renamed;

    static void install() {
        renamed = null;
        Robolectric.buildContentProvider(Documents.class).create(AUTHORITY);
    }

    static Uri tree(File folder) {
        return DocumentsContract.buildTreeDocumentUri(AUTHORITY, folder.getPath());
    }

    static Uri file(File file) {
        return DocumentsContract.buildDocumentUri(AUTHORITY, file.getPath());
    }

    @Override
    public boolean onCreate() {
        return true;
    }

    @Override
    public Cursor query(Uri uri, String[] columns, String selection, String[] arguments, String order) {
        MatrixCursor rows = new MatrixCursor(columns);
        File asked = new File(DocumentsContract.getDocumentId(uri));
        if (uri.getLastPathSegment().equals("children")) {
            for (File child : asked.listFiles()) {
                rows.addRow(row(child, columns));
            }
        } else {
            rows.addRow(row(asked, columns));
        }
        return rows;
    }

    private static List<Object> row(File file, String[] columns) {
        List<Object> row = new ArrayList<>();
        for (String column : columns) {
            switch (column) {
                case Document.COLUMN_DOCUMENT_ID:
                    row.add(file.getPath());
                    break;
                case Document.COLUMN_DISPLAY_NAME:
                    row.add(renamed != null && file.getName().equals("golden.json") ? renamed : file.getName());
                    break;
                case Document.COLUMN_MIME_TYPE:
                    row.add(file.isDirectory() ? Document.MIME_TYPE_DIR : "application/octet-stream");
                    break;
                default:
                    throw new IllegalArgumentException(column);
            }
        }
        return row;
    }

    @Override
    public ParcelFileDescriptor openFile(Uri uri, String mode) throws FileNotFoundException {
        File file = new File(DocumentsContract.getDocumentId(uri));
        if (!file.exists()) {  // Robolectric would open a descriptor first, and leave it open
            throw new FileNotFoundException(file.getPath());
        }
        return ParcelFileDescriptor.open(file, ParcelFileDescriptor.MODE_READ_ONLY);
    }

    @Override
    public String getType(Uri uri) {
        return null;
    }

    @Override
    public Uri insert(Uri uri, ContentValues values) {
        throw new UnsupportedOperationException();
    }

    @Override
    public int delete(Uri uri, String selection, String[] arguments) {
        throw new UnsupportedOperationException();
    }

    @Override
    public int update(Uri uri, ContentValues values, String selection, String[] arguments) {
        throw new UnsupportedOperationException();
    }
}
