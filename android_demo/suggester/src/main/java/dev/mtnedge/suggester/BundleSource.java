package dev.mtnedge.suggester;

import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * Where the files of a bundle come from: a folder ({@link FolderSource}), an app's assets, a content provider.
 *
 * <p>On Android, uncompressed assets can be mapped, so that the model costs no memory of the app's heap:
 * <pre>{@code
 * BundleSource assets = name -> {
 *     try (AssetFileDescriptor file = context.getAssets().openFd("bundle/" + name);
 *             FileInputStream stream = file.createInputStream()) {
 *         return stream.getChannel().map(READ_ONLY, file.getStartOffset(), file.getLength());
 *     }
 * };
 * }</pre>
 */
public interface BundleSource {
    /**
     * Gives a file's bytes.
     *
     * @param name relative, with {@code /} between its parts; never absolute, never with a part {@code ..}.
     * @return all bytes between position 0 and the limit; a mapped or other direct buffer is used as it is, and must
     *     not change as long as the suggester is open.
     * @throws IOException there is no such file, or it cannot be read.
     */
    ByteBuffer open(String name) throws IOException;
}
