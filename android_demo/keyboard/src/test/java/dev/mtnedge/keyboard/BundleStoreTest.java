package dev.mtnedge.keyboard;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.content.Context;
import android.content.pm.ApplicationInfo;
import android.net.Uri;
import android.os.Bundle;
import dev.mtnedge.suggester.Suggester;
import dev.mtnedge.suggester.SuggesterException;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.annotation.Config;
import org.robolectric.junit.rules.CloseGuardRule;

/** A good bundle is in force after its import; after any other the one before still is, and nothing of it is left. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35)
public class BundleStoreTest {
    @Rule public final TemporaryFolder temporary = new TemporaryFolder();
    @Rule public final CloseGuardRule nothingStaysOpen = new CloseGuardRule();

    private final Context context = RuntimeEnvironment.getApplication();
    private final File stored = new File(context.getFilesDir(), "bundles");
    private File mine;

    @Before
    public void choose() throws Exception {
        Documents.install();
        mine = BundleCopies.copy(Bundles.good(), new File(temporary.getRoot(), "My searches"));
    }

    @Test
    public void theBundleOfTheAppIsMappedAndAnswers() throws Exception {
        try (Suggester suggester = BundleStore.open(context)) {
            assertEquals(1, suggester.session().suggest("", 1).suggestions().size());
        }
    }

    @Test
    public void aFolderIsCopiedChosenAndOpened() throws Exception {
        BundleStore.Outcome outcome = BundleStore.importFrom(context, Documents.tree(mine));
        assertTrue(outcome.sentence, outcome.imported);
        assertTrue(outcome.sentence, outcome.sentence.startsWith("“My-searches” makes the suggestions now ("));
        inForce("My-searches");
        for (File file : mine.listFiles()) {
            File copy = new File(new File(stored, "My-searches"), file.getName());
            assertArrayEquals(Files.readAllBytes(file.toPath()), Files.readAllBytes(copy.toPath()));
        }
    }

    @Test
    public void anArchiveMayHoldTheBundleAtItsTopOrInAFolder() throws Exception {
        File flat = BundleCopies.zip(mine, new File(temporary.getRoot(), "flat.zip"), "");
        assertTrue(BundleStore.importFrom(context, Documents.file(flat)).imported);
        inForce("flat");
        File inFolder = BundleCopies.zip(mine, new File(temporary.getRoot(), "flat"), "bundle/");
        assertTrue(BundleStore.importFrom(context, Documents.file(inFolder)).imported);
        inForce("flat-2");
    }

    @Test
    public void theBundleOfTheAppCanBePutInForceAgain() throws Exception {
        assertTrue(BundleStore.importFrom(context, Documents.tree(mine)).imported);
        BundleStore.useBuiltIn(context);
        assertNull(Settings.of(context).chosenBundle());
        assertEquals(0, stored.list().length);
    }

    @Test
    public void anImportCleansUpAfterOneThatWasKilled() throws Exception {
        BundleCopies.copy(mine, new File(stored, ".incoming"));
        assertTrue(BundleStore.importFrom(context, Documents.tree(mine)).imported);
        inForce("My-searches");
    }

    @Test
    public void aDamagedBundleIsRefused() throws Exception {
        BundleCopies.damage(mine, "suggest.onnx");
        refused(Documents.tree(mine), "`suggest.onnx` is missing, damaged or changed");
        assertTrue(new File(mine, "tokenizer.json").delete());
        refused(Documents.file(BundleCopies.zip(mine, new File(temporary.getRoot(), "a.zip"), "")), "is missing, damaged");
    }

    @Test
    public void aNewerBundleIsRefused() throws Exception {
        File newer = Bundles.changed(manifest -> manifest.set("format_version", 2));
        refused(Documents.tree(newer), "the bundle has format version 2, newer than 1");
    }

    @Test
    public void whereThereIsAKeyOnlyWhatItSignedIsTaken() throws Exception {
        setKey(BundleCopies.publicKey());
        refused(Documents.tree(mine), "the bundle is not signed");
        BundleCopies.sign(mine);
        assertTrue(BundleStore.importFrom(context, Documents.tree(mine)).imported);
        inForce("My-searches");
        setKey(BundleCopies.otherKey());
        SuggesterException fault = assertThrows(SuggesterException.class, () -> BundleStore.open(context));
        assertEquals("bad-signature", fault.code());
        setKey("no key");
        fault = assertThrows(SuggesterException.class, () -> BundleStore.open(context));
        assertEquals("bad-key", fault.code());
    }

    @Test
    public void noNameLeadsOutOfTheFolder() throws Exception {
        String[] names = {"../escaped", "a/../../escaped", "/escaped", "..\\escaped", "a/./b", "a//b", ".."};
        for (String name : names) {
            refused(Documents.file(archive(name, new byte[1])), "the archive holds a file with the name `" + name + "`");
            Documents.renamed = name;
            refused(Documents.tree(mine), "the archive holds a file with the name `" + name + "`");
        }
        assertFalse(new File(stored, "escaped").exists());
        assertFalse(new File(context.getFilesDir(), "escaped").exists());
    }

    @Test
    public void aNameThatComesTwiceIsRefused() throws Exception {
        Documents.renamed = "";
        refused(Documents.tree(mine), "the archive holds a file with the name ``");
        File file = archive("manifest.json/x", new byte[1], "manifest.json", new byte[1]);
        refused(Documents.file(file), "the archive holds a file with the name `manifest.json`");
    }

    @Test
    public void whatIsTooLargeIsRefusedBeforeItFillsThePhone() throws Exception {
        File bomb = archive("manifest.json", new byte[(BundleCopy.MOST_MEGABYTES << 20) + 1]);
        assertTrue(bomb.length() < 1 << 20);
        refused(Documents.file(bomb), "the bundle is larger than 64 MB");
        try (RandomAccessFile file = new RandomAccessFile(new File(mine, "more"), "rw")) {
            file.setLength(BundleCopy.MOST_MEGABYTES << 20);
        }
        refused(Documents.tree(mine), "the bundle is larger than 64 MB");
        Object[] many = new Object[2 * BundleCopy.MOST_FILES + 2];
        for (int at = 0; at < many.length; at += 2) {
            many[at] = "f" + at;
            many[at + 1] = new byte[0];
        }
        refused(Documents.file(archive(many)), "more than 100 files");
    }

    @Test
    public void whatIsNoBundleIsRefused() throws Exception {
        File notes = new File(temporary.getRoot(), "notes.zip");
        Files.write(notes.toPath(), "no archive".getBytes(StandardCharsets.UTF_8));
        refused(Documents.file(notes), "there is no manifest.json");
        refused(Documents.tree(temporary.newFolder("empty")), "there is no manifest.json in the folder");
        refused(Documents.file(new File(temporary.getRoot(), "gone.zip")), "what was chosen cannot be read");
        refused(Uri.parse("content://nobody/document/1"), "what was chosen cannot be read");
    }

    @Test
    public void anArchiveThatBreaksOffIsRefused() throws Exception {
        File whole = BundleCopies.zip(mine, new File(temporary.getRoot(), "whole.zip"), "");
        byte[] bytes = Files.readAllBytes(whole.toPath());
        Files.write(whole.toPath(), Arrays.copyOf(bytes, bytes.length / 2));
        refused(Documents.file(whole), "what was chosen cannot be read");
    }

    /** Nothing changes, whether the bundle of the app is in force or another one. */
    private void refused(Uri chosen, String why) throws SuggesterException {
        String before = Settings.of(context).chosenBundle();
        BundleStore.Outcome outcome = BundleStore.importFrom(context, chosen);
        assertFalse(outcome.imported);
        assertTrue(outcome.sentence, outcome.sentence.contains(why));
        assertEquals(before, Settings.of(context).chosenBundle());
        String[] left = stored.list();
        assertEquals(before == null ? 0 : 1, left == null ? 0 : left.length);
    }

    private void inForce(String name) throws SuggesterException {
        assertEquals(name, Settings.of(context).chosenBundle());
        assertArrayEquals(new String[] {name}, stored.list());
        try (Suggester suggester = BundleStore.open(context)) {
            assertEquals(1, suggester.session().suggest("", 1).suggestions().size());
        }
    }

    private void setKey(String hex) {
        ApplicationInfo app = shadowOf(context.getPackageManager())
                .getInternalMutablePackageInfo(context.getPackageName()).applicationInfo;
        app.metaData = new Bundle();
        app.metaData.putString(BundleStore.KEY, hex);
    }

    /** An archive of names and contents in turn. */
    private File archive(Object... entries) throws IOException {
        File file = temporary.newFile();
        try (ZipOutputStream archive = new ZipOutputStream(Files.newOutputStream(file.toPath()))) {
            for (int at = 0; at < entries.length; at += 2) {
                archive.putNextEntry(new ZipEntry((String) entries[at]));
                archive.write((byte[]) entries[at + 1]);
            }
        }
        return file;
    }
}
