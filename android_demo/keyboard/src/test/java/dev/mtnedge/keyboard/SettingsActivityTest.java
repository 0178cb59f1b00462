package dev.mtnedge.keyboard;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.app.Activity;
import android.content.Context;
import android.content.Intent;
import android.graphics.Bitmap;
import android.graphics.Canvas;
import android.graphics.Insets;
import android.net.Uri;
import android.view.View;
import android.view.WindowInsets;
import android.view.inputmethod.InputMethodInfo;
import android.view.inputmethod.InputMethodManager;
import android.widget.CompoundButton;
import android.widget.EditText;
import android.widget.TextView;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.util.Collections;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.After;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.junit.runner.RunWith;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ActivityController;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;
import org.robolectric.shadows.ShadowActivity;
import org.robolectric.shadows.ShadowLooper;

/** The settings page: the first run, the field to try, the switches, and the choice of a bundle. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35, qualifiers = SettingsActivityTest.PHONE)
@GraphicsMode(GraphicsMode.Mode.NATIVE)
public class SettingsActivityTest {
    static final String PHONE = "w411dp-h891dp-port-xhdpi";
    private static final String LATENCY =
            "\\d suggestions? in \\d+[.,]\\d ms \\(median of what you typed: \\d+[.,]\\d ms\\)";

    @Rule public final TemporaryFolder temporary = new TemporaryFolder();

    private final Context context = RuntimeEnvironment.getApplication();
    private ActivityController<SettingsActivity> controller;
    private boolean shown;

    @Before
    public void install() {
        Documents.install();
        controller = Robolectric.buildActivity(SettingsActivity.class);
    }

    @After
    public void leave() {
        if (shown) {
            controller.pause().stop().destroy();
        }
    }

    @Test
    public void theFirstRunLeadsToTheListOfKeyboards() {
        show();
        assertEquals(View.VISIBLE, find(R.id.setup_steps).getVisibility());
        assertEquals(View.GONE, find(R.id.setup_ready).getVisibility());
        assertTrue(find(R.id.setup_allow).isEnabled());
        assertFalse(find(R.id.setup_take).isEnabled());
        find(R.id.setup_allow).performClick();
        Intent opened = shadowOf(controller.get()).getNextStartedActivity();
        assertEquals("android.settings.INPUT_METHOD_SETTINGS", opened.getAction());
    }

    @Test
    public void onceItIsAllowedItCanBeTaken() {
        show();
        allow();
        back();
        assertFalse(find(R.id.setup_allow).isEnabled());
        assertEquals("Done", text(R.id.setup_allow));
        assertTrue(find(R.id.setup_take).isEnabled());
        take("dev.mtnedge.keyboard.other/.Service");  // another app, whose name begins with ours
        back();
        assertEquals(View.VISIBLE, find(R.id.setup_steps).getVisibility());
        take("dev.mtnedge.keyboard/.MtnKeyboardService");
        back();
        assertEquals(View.GONE, find(R.id.setup_steps).getVisibility());
        assertEquals(View.VISIBLE, find(R.id.setup_ready).getVisibility());
    }

    @Test
    public void theFieldShowsSuggestionsAndHowLongTheyTook() throws Exception {
        chooseBundle();
        show();
        assertEquals("Type, and see how long the suggestions take.", text(R.id.latency));
        String typed = Bundles.beginning();
        type(typed);
        await(() -> text(R.id.latency).matches(LATENCY));
        for (String line : text(R.id.try_list).split("\n")) {
            assertTrue(line, line.startsWith(typed) && line.length() > typed.length());
        }
        type("");
        assertEquals("Type, and see how long the suggestions take.", text(R.id.latency));
        assertEquals(View.GONE, find(R.id.try_list).getVisibility());
    }

    @Test
    public void theSwitchesAreKept() {
        show();
        assertTrue(((CompoundButton) find(R.id.settings_suggestions)).isChecked());
        find(R.id.settings_suggestions).performClick();
        find(R.id.settings_haptics).performClick();
        ShadowLooper.idleMainLooper();
        assertFalse(Settings.of(context).suggestions());
        assertFalse(Settings.of(context).haptics());
        assertEquals("Suggestions are switched off.", text(R.id.latency));
        type("ke");
        assertEquals("Suggestions are switched off.", text(R.id.latency));
        find(R.id.settings_suggestions).performClick();
        ShadowLooper.idleMainLooper();
        assertFalse(text(R.id.latency).equals("Suggestions are switched off."));
    }

    @Test
    public void aPickerThatIsCancelledChangesNothing() {
        show();
        for (int button : new int[] {R.id.bundle_folder, R.id.bundle_zip}) {
            find(button).performClick();
            shadowOf(controller.get()).receiveResult(asked(), Activity.RESULT_CANCELED, null);
            find(button).performClick();
            shadowOf(controller.get()).receiveResult(asked(), Activity.RESULT_OK, new Intent());
        }
        ShadowLooper.idleMainLooper();
        assertNull(Settings.of(context).chosenBundle());
        assertEquals("The bundle that came with the app", text(R.id.bundle_name));
        assertEquals(View.GONE, find(R.id.bundle_status).getVisibility());
        assertTrue(find(R.id.bundle_folder).isEnabled());
    }

    @Test
    public void aBundleIsPickedAsAFolderOrAnArchive() throws Exception {
        show();
        pick(R.id.bundle_folder, "android.intent.action.OPEN_DOCUMENT_TREE", Documents.tree(mine()));
        assertFalse(find(R.id.bundle_folder).isEnabled());
        assertEquals("The bundle is being copied and checked…", text(R.id.bundle_status));
        awaitImport();
        assertEquals("Your bundle “mine”", text(R.id.bundle_name));
        assertTrue(text(R.id.bundle_status).startsWith("“mine” makes the suggestions now"));
        type("ke");
        await(() -> text(R.id.latency).matches(LATENCY));

        BundleCopies.damage(mine(), "encode.onnx");
        File archive = BundleCopies.zip(mine(), new File(temporary.getRoot(), "bad.zip"), "");
        pick(R.id.bundle_zip, "android.intent.action.OPEN_DOCUMENT", Documents.file(archive));
        awaitImport();
        assertTrue(text(R.id.bundle_status).startsWith("`encode.onnx` is missing, damaged or changed"));
        assertEquals("Your bundle “mine”", text(R.id.bundle_name));

        find(R.id.bundle_reset).performClick();
        awaitImport();
        assertEquals("The bundle that came with the app", text(R.id.bundle_name));
        assertFalse(find(R.id.bundle_reset).isEnabled());
    }

    @Test
    public void anImportOutlivesTheTurnOfThePage() throws Exception {
        show();
        pick(R.id.bundle_folder, "android.intent.action.OPEN_DOCUMENT_TREE", Documents.tree(mine()));
        RuntimeEnvironment.setQualifiers("land");
        controller.configurationChange();
        assertEquals("The bundle is being copied and checked…", text(R.id.bundle_status));
        awaitImport();
        assertEquals("Your bundle “mine”", text(R.id.bundle_name));
    }

    @Test
    public void aBundleThatCannotBeOpenedIsNamedInTheField() throws Exception {
        chooseBundle();
        BundleCopies.damage(new File(context.getFilesDir(), "bundles/mine"), "tokenizer.json");
        show();
        type("ke");
        await(() -> text(R.id.latency).startsWith("`tokenizer.json` is missing, damaged or changed"));
    }

    @Test
    public void thePageKeepsClearOfBarsAndKeyboard() {
        show();
        WindowInsets insets = new WindowInsets.Builder()
                .setInsets(WindowInsets.Type.systemBars(), Insets.of(1, 50, 2, 60)).build();
        View page = find(R.id.settings_page);
        page.dispatchApplyWindowInsets(insets);
        assertEquals(50, page.getPaddingTop());
        assertEquals(60, page.getPaddingBottom());
        assertEquals(1, page.getPaddingLeft());
        assertEquals(2, page.getPaddingRight());
    }

    @Test
    public void theFirstRunInLight() throws Exception {
        show();
        drawTo("settings-first-run");
    }

    @Test
    public void thePageInLight() throws Exception {
        draw("settings-light");
    }

    @Test
    @Config(qualifiers = "+night")
    public void thePageInDark() throws Exception {
        chooseBundle();
        draw("settings-dark");
    }

    private void draw(String name) throws Exception {
        allow();
        take("dev.mtnedge.keyboard/.MtnKeyboardService");
        show();
        String typed = Bundles.beginning();
        for (int turn = 0; turn < 5; turn++) {  // a few times, so that the median on the picture is one
            for (int end = 1; end <= typed.length(); end++) {
                type("");
                type(typed.substring(0, end));
                await(() -> text(R.id.latency).matches(LATENCY));
            }
        }
        drawTo(name);
    }

    private void show() {
        controller.setup();
        shown = true;
        ShadowLooper.idleMainLooper();
    }

    /** The window has the focus again, after another one of the system. */
    private void back() {
        controller.windowFocusChanged(false).windowFocusChanged(true);
        ShadowLooper.idleMainLooper();
    }

    private void allow() {
        InputMethodInfo keyboard = new InputMethodInfo(
                "dev.mtnedge.keyboard", "dev.mtnedge.keyboard.MtnKeyboardService", "mtn-edge keyboard", null);
        shadowOf((InputMethodManager) context.getSystemService(Context.INPUT_METHOD_SERVICE))
                .setEnabledInputMethodInfoList(Collections.singletonList(keyboard));
    }

    private void take(String keyboard) {
        android.provider.Settings.Secure.putString(
                context.getContentResolver(), android.provider.Settings.Secure.DEFAULT_INPUT_METHOD, keyboard);
    }

    private File mine() throws IOException {
        File folder = new File(temporary.getRoot(), "mine");
        return folder.exists() ? folder : BundleCopies.copy(Bundles.good(), folder);
    }

    private void chooseBundle() throws IOException {
        BundleStore.Outcome outcome = BundleStore.importFrom(context, Documents.tree(mine()));
        assertTrue(outcome.sentence, outcome.imported);
    }

    private Intent asked() {
        ShadowActivity.IntentForResult asked = shadowOf(controller.get()).getNextStartedActivityForResult();
        return asked.intent;
    }

    private void pick(int button, String action, Uri chosen) {
        find(button).performClick();
        Intent asked = asked();
        assertEquals(action, asked.getAction());
        shadowOf(controller.get()).receiveResult(asked, Activity.RESULT_OK, new Intent().setData(chosen));
    }

    private void awaitImport() {
        await(() -> find(R.id.bundle_folder).isEnabled());
    }

    private void type(String text) {
        EditText field = (EditText) find(R.id.try_field);
        field.setText(text);
        field.setSelection(text.length());
        ShadowLooper.idleMainLooper();
    }

    /** Runs the main thread until something holds that another thread brings. */
    private static void await(BooleanSupplier condition) {
        for (int turn = 0; turn < 60_000 && !condition.getAsBoolean(); turn++) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
            ShadowLooper.idleMainLooper();
        }
        assertTrue(condition.getAsBoolean());
    }

    private View find(int id) {
        return controller.get().findViewById(id);
    }

    private String text(int id) {
        return ((TextView) find(id)).getText().toString();
    }

    private void drawTo(String name) throws IOException {
        View page = controller.get().getWindow().getDecorView();
        Bitmap shot = Bitmap.createBitmap(page.getWidth(), page.getHeight(), Bitmap.Config.ARGB_8888);
        page.draw(new Canvas(shot));
        File out = new File("target/screenshots", name + ".png");
        assertTrue(out.getParentFile().mkdirs() || out.getParentFile().isDirectory());
        try (FileOutputStream file = new FileOutputStream(out)) {
            assertTrue(shot.compress(Bitmap.CompressFormat.PNG, 100, file));
        }
    }
}
