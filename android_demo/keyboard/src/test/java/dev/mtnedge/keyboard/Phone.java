package dev.mtnedge.keyboard;

import static org.junit.Assert.assertTrue;

import android.app.Activity;
import android.content.res.Configuration;
import android.graphics.Bitmap;
import android.graphics.Canvas;
import android.graphics.RectF;
import android.inputmethodservice.InputMethodService;
import android.os.Binder;
import android.os.IBinder;
import android.os.SystemClock;
import android.text.InputType;
import android.view.MotionEvent;
import android.view.View;
import android.view.ViewGroup;
import android.view.inputmethod.EditorInfo;
import android.view.inputmethod.ImeTracker;
import android.view.inputmethod.InputConnection;
import android.view.inputmethod.InputMethod;
import android.widget.EditText;
import android.widget.LinearLayout;
import android.widget.TextView;
import com.android.internal.infra.AndroidFuture;
import com.android.internal.inputmethod.IInputMethodPrivilegedOperations;
import com.android.internal.inputmethod.InputMethodPrivilegedOperations;
import com.android.internal.inputmethod.InputMethodPrivilegedOperationsRegistry;
import dev.mtnedge.suggester.FolderSource;
import dev.mtnedge.suggester.Suggester;
import dev.mtnedge.suggester.SuggestionWorker;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.robolectric.Robolectric;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ActivityController;
import org.robolectric.android.controller.ServiceController;
import org.robolectric.shadows.ShadowLooper;
import org.robolectric.util.ReflectionHelpers;
import org.robolectric.util.ReflectionHelpers.ClassParameter;

/** The real service in its real window, typing into the field of an activity; the test is the main thread. */
final class Phone implements AutoCloseable {
    /** What the system knows of other keyboards. */
    @SuppressWarnings({"rawtypes", "unchecked"})  // as the system has it
    static final class Others extends IInputMethodPrivilegedOperations.Default {
        boolean offered;
        boolean hasNext = true;
        /** For each time that the next one was asked for, whether it had to be of the same app. */
        final List<Boolean> switches = new ArrayList<>();

        @Override
        public void shouldOfferSwitchingToNextInputMethod(AndroidFuture answer) {
            answer.complete(offered);
        }

        @Override
        public void switchToNextInputMethod(boolean sameApp, AndroidFuture answer) {
            switches.add(sameApp);
            answer.complete(hasNext);
        }

        @Override
        public void hideMySoftInput(ImeTracker.Token token, int flags, int reason, AndroidFuture answer) {
            answer.complete(null);
        }
    }

    final Activity activity;
    final EditText editor;
    final MtnKeyboardService service;
    /** Actions that the field was asked for. */
    final List<Integer> actions = new ArrayList<>();
    /** Behind the service's own methods. */
    final Others others = new Others();
    /** Behind the methods that want the window's token. */
    final Others othersByToken = new Others();
    private final ServiceController<MtnKeyboardService> controller;
    private final InputMethodService.InputMethodImpl method;
    private final AtomicInteger answered = new AtomicInteger();
    private final Semaphore answers = new Semaphore(0);
    private Geometry.Placed held;

    @SuppressWarnings("deprecation")  // of what the system itself calls
    Phone(SuggestionWorker.Opener opener) {
        ActivityController<Activity> screen = Robolectric.buildActivity(Activity.class);
        activity = screen.get();
        activity.setTheme(android.R.style.Theme_DeviceDefault_DayNight);
        screen.setup();
        editor = searchField();
        controller = Robolectric.buildService(MtnKeyboardService.class);
        service = controller.get();
        service.opener = opener;
        Executor real = service.answers;
        service.answers = work -> {
            answered.incrementAndGet();
            real.execute(work);
            answers.release();
        };
        controller.create();
        method = (InputMethodService.InputMethodImpl) service.onCreateInputMethodInterface();
        // attachToken() would want a window manager; the window only needs some token
        IBinder token = new Binder();
        ReflectionHelpers.callInstanceMethod(
                service.getWindow(), "setToken", ClassParameter.from(IBinder.class, token));
        InputMethodPrivilegedOperations system = ReflectionHelpers.getField(service, "mPrivOps");
        system.set(others);
        InputMethodPrivilegedOperations byToken = new InputMethodPrivilegedOperations();
        byToken.set(othersByToken);
        InputMethodPrivilegedOperationsRegistry.put(token, byToken);
    }

    /** A keyboard whose model is no model. */
    static Phone withoutModel() {
        return new Phone(() -> Suggester.open(name -> {
            throw new FileNotFoundException(name);
        }));
    }

    static Phone withBundle() {
        return with(Bundles.good());
    }

    static Phone with(File bundle) {
        return new Phone(() -> Suggester.open(new FolderSource(bundle)));
    }

    /** A text field at the lower end of the page, with what a search box asks for. */
    private EditText searchField() {
        LinearLayout page = new LinearLayout(activity);
        page.setPadding(24, 0, 24, 0);
        EditText field = new EditText(activity);
        field.setHint("Search");
        field.setOnEditorActionListener((view, action, event) -> actions.add(action));
        page.addView(field, new LinearLayout.LayoutParams(
                ViewGroup.LayoutParams.MATCH_PARENT, ViewGroup.LayoutParams.WRAP_CONTENT));
        activity.setContentView(page);
        return field;
    }

    /** A search box gets the focus. */
    void search() {
        focus(InputType.TYPE_CLASS_TEXT, EditorInfo.IME_ACTION_SEARCH);
    }

    /** What the system does when a field gets the focus. */
    void focus(int inputType, int imeOptions) {
        editor.setInputType(inputType);
        editor.setImeOptions(imeOptions);
        EditorInfo info = new EditorInfo();
        focus(editor.onCreateInputConnection(info), info);
    }

    void focus(InputConnection connection, EditorInfo about) {
        method.startInput(connection, about);
        method.showSoftInput(InputMethod.SHOW_EXPLICIT, null);
        idle();
    }

    /** An app tells the keyboard anew about the field that it is in. */
    void restart() {
        EditorInfo info = new EditorInfo();
        method.restartInput(editor.onCreateInputConnection(info), info);
        idle();
    }

    /** The keyboard goes; the field keeps the focus. */
    void hide() {
        method.hideSoftInput(0, null);
        idle();
    }

    /** Turns the phone, or changes anything else of its configuration. */
    void configure(String qualifiers) {
        RuntimeEnvironment.setQualifiers(qualifiers);
        service.onConfigurationChanged(new Configuration(service.getResources().getConfiguration()));
        idle();
    }

    KeyboardView keys() {
        return service.getWindow().findViewById(R.id.keys);
    }

    /** A key by what it types, or by the name of its kind or page. */
    Geometry.Placed key(String name) {
        for (Geometry.Placed placed : keys().keys()) {
            boolean typed = placed.key.text.equals(name);
            if (typed || placed.key.kind.name().equals(name) && placed.key.kind != Key.Kind.TEXT) {
                return placed;
            }
        }
        throw new AssertionError("there is no key " + name);
    }

    void touch(int action, float x, float y) {
        long now = SystemClock.uptimeMillis();
        keys().dispatchTouchEvent(MotionEvent.obtain(now, now, action, x, y, 0));
    }

    /** Two fingers are down, on two keys; one of them, by its number, has just come or leaves. */
    void touchTwo(int action, int which, RectF first, RectF second) {
        MotionEvent.PointerProperties[] fingers = new MotionEvent.PointerProperties[2];
        MotionEvent.PointerCoords[] places = new MotionEvent.PointerCoords[2];
        for (int finger = 0; finger < 2; finger++) {
            fingers[finger] = new MotionEvent.PointerProperties();
            fingers[finger].id = finger;
            places[finger] = new MotionEvent.PointerCoords();
            places[finger].x = (finger == 0 ? first : second).centerX();
            places[finger].y = (finger == 0 ? first : second).centerY();
        }
        long now = SystemClock.uptimeMillis();
        int what = action | which << MotionEvent.ACTION_POINTER_INDEX_SHIFT;
        keys().dispatchTouchEvent(
                MotionEvent.obtain(now, now, what, 2, fingers, places, 0, 0, 1, 1, 0, 0, 0, 0));
        idle();
    }

    /** The key under the finger. */
    Geometry.Placed held() {
        return held;
    }

    void tap(String name) {
        hold(name, 0);
    }

    /** A finger rests on a key for a while. */
    void hold(String name, long milliseconds) {
        press(name);
        pass(milliseconds);
        release();
    }

    void press(String name) {
        held = key(name);
        touch(MotionEvent.ACTION_DOWN, held.area.centerX(), held.area.centerY());
        idle();
    }

    void release() {
        touch(MotionEvent.ACTION_UP, held.area.centerX(), held.area.centerY());
        idle();
    }

    void type(String text) {
        for (String letter : text.split("")) {
            tap(letter);
        }
    }

    /** What apps do by themselves: after a search, for instance. */
    void setText(String text) {
        editor.setText(text);
        editor.setSelection(text.length());
        service.onUpdateSelection(0, 0, text.length(), text.length(), -1, -1);
        idle();
    }

    /** The clock goes on. */
    void pass(long milliseconds) {
        ShadowLooper.idleMainLooper(milliseconds, TimeUnit.MILLISECONDS);
    }

    String text() {
        return editor.getText().toString();
    }

    void idle() {
        ShadowLooper.idleMainLooper();
    }

    /** Runs the main thread as answers come, until something holds. */
    void await(BooleanSupplier condition) {
        idle();
        while (!condition.getAsBoolean()) {
            try {
                assertTrue("no answer came", answers.tryAcquire(60, TimeUnit.SECONDS));
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
            idle();
        }
    }

    /** Whether the model answers anything that was asked from now on, within some milliseconds. */
    boolean answersWithin(long milliseconds, Runnable ask) throws InterruptedException {
        int before = answered.get();
        ask.run();
        idle();
        for (long waited = 0; waited < milliseconds && answered.get() == before; waited += 10) {
            Thread.sleep(10);
        }
        return answered.get() > before;
    }

    /** Until there are suggestions that go on with what the field holds. */
    void awaitSuggestions() {
        await(() -> !suggestions().isEmpty() && suggestions().stream().allMatch(line -> line.startsWith(text())));
    }

    boolean isShown(int id) {
        return find(id).getVisibility() == View.VISIBLE;
    }

    View find(int id) {
        return service.getWindow().findViewById(id);
    }

    /** What the strip shows. */
    List<String> suggestions() {
        ViewGroup places = (ViewGroup) find(R.id.suggestions);
        List<String> texts = new ArrayList<>();
        for (int place = 0; place < places.getChildCount(); place++) {
            if (places.getChildAt(place).getVisibility() == View.VISIBLE) {
                texts.add(((TextView) places.getChildAt(place)).getText().toString());
            }
        }
        return texts;
    }

    /** The sentence on the strip; empty when there is none. */
    String notice() {
        TextView notice = (TextView) find(R.id.notice);
        return notice.getVisibility() == View.VISIBLE ? notice.getText().toString() : "";
    }

    void tapSuggestion(int number) {
        ((ViewGroup) find(R.id.suggestions)).getChildAt(number).performClick();
        idle();
    }

    /** The activity with the keyboard's window over its lower end. */
    void screenshot(String name) throws IOException {
        View screen = activity.getWindow().getDecorView();
        View board = service.getWindow().getWindow().getDecorView();
        Bitmap shot = Bitmap.createBitmap(screen.getWidth(), screen.getHeight(), Bitmap.Config.ARGB_8888);
        Canvas canvas = new Canvas(shot);
        screen.draw(canvas);
        canvas.translate(0, screen.getHeight() - board.getHeight());
        board.draw(canvas);
        File out = new File("target/screenshots", name + ".png");
        assertTrue(out.getParentFile().mkdirs() || out.getParentFile().isDirectory());
        try (FileOutputStream file = new FileOutputStream(out)) {
            assertTrue(shot.compress(Bitmap.CompressFormat.PNG, 100, file));
        }
    }

    @Override
    public void close() {
        controller.destroy();
        idle();
    }
}
