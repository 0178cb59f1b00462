package dev.mtnedge.keyboard;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.content.Intent;
import android.text.InputType;
import android.view.View;
import android.view.ViewGroup;
import android.view.inputmethod.EditorInfo;
import dev.mtnedge.suggester.FolderSource;
import dev.mtnedge.suggester.Suggester;
import java.io.File;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;

/** What the strip shows, and what is kept and what is not; with a real bundle. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35, qualifiers = "w411dp-h891dp-port-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
public class StripTest {
    private static final int TEXT = InputType.TYPE_CLASS_TEXT;

    @Test
    public void suggestionsThatComeLateAreForWhatIsTypedByThen() throws Exception {
        CountDownLatch gate = new CountDownLatch(1);
        File bundle = Bundles.good();
        String word = Bundles.beginning();
        try (Phone phone = new Phone(() -> {
            awaitGate(gate);
            return Suggester.open(new FolderSource(bundle));
        })) {
            phone.search();
            phone.type(word);
            assertEquals(word, phone.text());
            assertEquals(Collections.emptyList(), phone.suggestions());
            gate.countDown();
            phone.awaitSuggestions();
            assertTrue(phone.suggestions().size() <= 5);
            for (String suggestion : phone.suggestions()) {
                assertTrue(suggestion, suggestion.startsWith(word) && suggestion.length() > word.length());
            }
        }
    }

    @Test
    public void aTapWritesTheSuggestionInThePlaceOfWhatWasTyped() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.type(Bundles.beginning());
            phone.awaitSuggestions();
            String last = phone.suggestions().get(phone.suggestions().size() - 1);
            phone.tapSuggestion(phone.suggestions().size() - 1);
            assertEquals(last, phone.text());
            assertEquals(last.length(), phone.editor.getSelectionStart());
        }
    }

    @Test
    public void aTapReplacesTheWholeLineOfTheCursorAndNoOther() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.focus(TEXT | InputType.TYPE_TEXT_FLAG_MULTI_LINE, 0);
            phone.setText("one\n" + Bundles.beginning() + "xx\nthree");
            phone.editor.setSelection(4 + Bundles.beginning().length(), 4 + Bundles.beginning().length() + 1);
            phone.service.onUpdateSelection(0, 0, 0, 0, -1, -1);
            phone.await(() -> !phone.suggestions().isEmpty()
                    && phone.suggestions().get(0).startsWith(word()));
            String first = phone.suggestions().get(0);
            phone.tapSuggestion(0);
            assertEquals("one\n" + first + "\nthree", phone.text());
        }
    }

    @Test
    @Config(qualifiers = "ar-ldrtl-w411dp-h891dp-port-xhdpi")
    public void theFirstSuggestionStandsAtTheRightWhereTheLanguageBeginsThere() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.type(Bundles.beginning());
            phone.awaitSuggestions();
            phone.pass(100);  // until it is drawn
            View scroll = phone.find(R.id.scroll);
            View first = ((ViewGroup) phone.find(R.id.suggestions)).getChildAt(0);
            assertEquals(scroll.getWidth(), first.getRight() - scroll.getScrollX());
        }
    }

    @Test
    public void aClickThatComesAfterItsSuggestionIsGoneDoesNothing() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.type(Bundles.beginning());
            phone.awaitSuggestions();
            Settings.of(phone.service).setSuggestions(false);
            phone.idle();
            phone.tapSuggestion(0);
            assertEquals(Bundles.beginning(), phone.text());
        }
    }

    private static String word() {
        try {
            return Bundles.beginning();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    @Test
    public void theSessionGrowsWithEachSearchAndIsForgottenAtATap() throws Exception {
        AtomicInteger opened = new AtomicInteger();
        File bundle = Bundles.good();
        try (Phone phone = new Phone(() -> {
            opened.incrementAndGet();
            return Suggester.open(new FolderSource(bundle));
        })) {
            phone.search();
            phone.awaitSuggestions();
            List<String> fresh = phone.suggestions();
            assertFalse(phone.isShown(R.id.clear));
            phone.tapSuggestion(0);
            phone.tap("ENTER");
            assertEquals(Collections.singletonList(EditorInfo.IME_ACTION_SEARCH), phone.actions);
            assertTrue(phone.isShown(R.id.clear));
            phone.setText("");
            phone.await(() -> !phone.suggestions().isEmpty() && !phone.suggestions().equals(fresh));
            assertEquals(1, opened.get());
            phone.find(R.id.clear).performClick();
            phone.await(() -> phone.suggestions().equals(fresh));
            assertFalse(phone.isShown(R.id.clear));
            assertEquals(2, opened.get());
        }
    }

    @Test
    public void afterHalfAnHourANewSessionBegins() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.awaitSuggestions();
            List<String> fresh = phone.suggestions();
            phone.tapSuggestion(0);
            phone.tap("ENTER");
            phone.setText("");
            phone.await(() -> !phone.suggestions().isEmpty() && !phone.suggestions().equals(fresh));
            phone.pass(31 * 60 * 1000);
            phone.setText("");
            phone.await(() -> phone.suggestions().equals(fresh));
            assertTrue(phone.isShown(R.id.clear));
        }
    }

    @Test
    public void nothingIsSuggestedOrKeptInPrivateFields() throws Exception {
        int[][] fields = {
            {TEXT | InputType.TYPE_TEXT_VARIATION_PASSWORD, EditorInfo.IME_ACTION_SEARCH},
            {TEXT | InputType.TYPE_TEXT_VARIATION_WEB_PASSWORD, EditorInfo.IME_ACTION_SEARCH},
            {TEXT | InputType.TYPE_TEXT_VARIATION_VISIBLE_PASSWORD, EditorInfo.IME_ACTION_SEARCH},
            {TEXT | InputType.TYPE_TEXT_VARIATION_EMAIL_ADDRESS, EditorInfo.IME_ACTION_SEARCH},
            {TEXT | InputType.TYPE_TEXT_FLAG_NO_SUGGESTIONS, EditorInfo.IME_ACTION_SEARCH},
            {TEXT, EditorInfo.IME_ACTION_SEARCH | EditorInfo.IME_FLAG_NO_PERSONALIZED_LEARNING},
            {InputType.TYPE_CLASS_NUMBER | InputType.TYPE_NUMBER_VARIATION_PASSWORD, EditorInfo.IME_ACTION_SEARCH},
        };
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.awaitSuggestions();
            for (int[] field : fields) {
                phone.setText("");
                phone.focus(field[0], field[1]);
                phone.tap(field[0] == fields[6][0] ? "1" : "h");
                assertEquals(1, phone.text().length());
                assertEquals(Collections.emptyList(), phone.suggestions());
                assertEquals("Nothing is suggested or kept in this field", phone.notice());
                phone.tap("ENTER");
            }
            assertEquals(fields.length, phone.actions.size());
            phone.setText("");
            phone.search();
            phone.awaitSuggestions();
            assertEquals("", phone.notice());
            assertFalse(phone.isShown(R.id.clear));
        }
    }

    @Test
    public void fieldsOfAFormAndMessagesIssueNoQueries() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.focus(TEXT, EditorInfo.IME_ACTION_NEXT);
            phone.type("ho");
            phone.tap("ENTER");
            phone.focus(TEXT, EditorInfo.IME_ACTION_SEND);
            phone.tap("ENTER");
            assertFalse(phone.isShown(R.id.clear));
        }
    }

    /** A field tells of each change by itself, a moment after the key. */
    @Test
    public void theModelIsAskedOnceForAText() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.type(Bundles.beginning());
            while (phone.answersWithin(300, phone::idle)) {
                phone.awaitSuggestions();  // of both letters
            }
            assertFalse(phone.answersWithin(300, () -> phone.service.onUpdateSelection(1, 1, 2, 2, -1, -1)));
            assertTrue(phone.answersWithin(60_000, () -> phone.setText("")));
        }
    }

    @Test
    public void nothingIsAskedWhileTheKeysAreAway() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.awaitSuggestions();
            phone.hide();
            assertFalse(phone.answersWithin(300, () -> phone.setText("h")));
            phone.search();
            phone.awaitSuggestions();
        }
    }

    @Test
    public void turningThePhoneChangesNeitherPageNorTextNorSession() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.type(Bundles.beginning());
            phone.tap("ENTER");
            phone.tap("SYMBOLS");
            phone.awaitSuggestions();
            int width = phone.keys().getWidth();
            KeyboardView before = phone.keys();
            phone.configure("w891dp-h411dp-land-xhdpi");
            assertNotEquals(before, phone.keys());
            assertTrue(phone.keys().getWidth() > width);
            assertEquals(Page.SYMBOLS, phone.keys().state().page());
            assertTrue(phone.isShown(R.id.clear));
            phone.awaitSuggestions();
            phone.tap("1");
            assertEquals(Bundles.beginning() + "1", phone.text());
        }
    }

    @Test
    public void anotherProcessShowsSuggestionsForWhatIsThereButKnowsNoHistory() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.type(Bundles.beginning());
            phone.tap("ENTER");
        }
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.setText(Bundles.beginning());
            phone.awaitSuggestions();
            assertFalse(phone.isShown(R.id.clear));
        }
    }

    @Test
    public void settingsSwitchTheSuggestionsOffAndOn() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.awaitSuggestions();
            Settings.of(phone.service).setSuggestions(false);
            phone.type(Bundles.beginning());
            assertEquals(Collections.emptyList(), phone.suggestions());
            Settings.of(phone.service).setSuggestions(true);
            phone.awaitSuggestions();
        }
    }

    @Test
    public void theKeyToTheSettingsOpensThem() throws Exception {
        try (Phone phone = Phone.withoutModel()) {
            phone.search();
            phone.find(R.id.settings).performClick();
            Intent next = shadowOf(phone.service).getNextStartedActivity();
            assertEquals(SettingsActivity.class.getName(), next.getComponent().getClassName());
        }
    }

    static void awaitGate(CountDownLatch gate) {
        try {
            gate.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
