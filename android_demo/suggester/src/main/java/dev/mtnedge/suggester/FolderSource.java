package dev.mtnedge.suggester;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;

/** The files of a bundle in a folder, mapped; links that leave it are refused. */
public final class FolderSource implements BundleSource {
    private final File folder;

    /** @param folder holds {@code manifest.json} and the files that it names. */
    public FolderSource(File folder) {
        this.folder = folder;
    }

    @Override
    public ByteBuffer open(String name) throws IOException {
        File file = new File(folder, name);
        if (!file.getCanonicalFile().equals(new File(folder.getCanonicalFile(), name))) {
            throw new IOException(file + " is a link");
        }
        if (!file.isFile()) {
            throw new FileNotFoundException(file + " is no file");
        }
        try (FileInputStream stream = new FileInputStream(file)) {
            FileChannel channel = stream.getChannel();
            if (channel.size() > Integer.MAX_VALUE) {
                throw new IOException(file + " is larger than 2 GB");
            }
            return channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
        }
    }

    @Override
    public String toString() {
        return folder.toString();
    }
}
