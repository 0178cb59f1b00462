package dev.mtnedge.suggester;

import static org.junit.Assume.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** What tests/test_android_suggester.py has made. */
final class Fixtures {
    private Fixtures() {}

    /** A file or folder; the test is skipped when nothing was made. */
    static Path path(String name) {
        String folder = System.getProperty("fixtures", "");
        assumeTrue("no fixtures: run tests/test_android_suggester.py, or give -Dfixtures=FOLDER", !folder.isEmpty());
        return Paths.get(folder, name);
    }

    static BundleSource source(String name) {
        return new FolderSource(path(name).toFile());
    }

    static void copy(Path from, Path to) throws IOException {
        Files.createDirectory(to);
        try (Stream<Path> files = Files.list(from)) {
            List<Path> all = files.collect(Collectors.toList());
            for (Path file : all) {
                Files.copy(file, to.resolve(file.getFileName()));
            }
        }
    }
}
