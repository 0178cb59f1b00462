package dev.mtnedge.keyboard;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;

import android.text.InputType;
import android.view.KeyEvent;
import android.view.MotionEvent;
import android.view.inputmethod.BaseInputConnection;
import android.view.inputmethod.EditorInfo;
import android.view.inputmethod.InputConnection;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import org.junit.Test;

/** What keys do to the field; there is no model. */
public class TypingTest extends PhoneCase {
    @Test
    public void everyKeyOfEveryPageTypesWhatStandsOnIt() {
        typeAll(Page.LETTERS);
        for (String page : Arrays.asList("SYMBOLS", "MORE", "LETTERS", "EMOJI", "PLACES", "FOOD", "THINGS", "EMOJI")) {
            phone.tap(page);
            typeAll(Page.valueOf(page));
        }
        phone.focus(InputType.TYPE_CLASS_PHONE, EditorInfo.IME_ACTION_DONE);
        typeAll(Page.NUMBERS);
    }

    private void typeAll(Page page) {
        assertEquals(page, phone.keys().state().page());
        int typed = 0;
        for (List<Key> row : page.rows(false)) {
            for (Key key : row) {
                if (key.kind == Key.Kind.TEXT) {
                    phone.setText("");
                    phone.tap(key.text);
                    assertEquals(key.text, phone.text());
                    typed++;
                }
            }
        }
        assertEquals(typed, phone.keys().keys().stream().filter(placed -> placed.key.kind == Key.Kind.TEXT).count());
    }

    @Test
    public void shiftMakesOneCapitalAndTwoTapsLockIt() {
        phone.tap("SHIFT");
        phone.type("ab");
        phone.pass(1000);
        phone.tap("SHIFT");
        phone.tap("SHIFT");
        phone.type("cd");
        phone.tap("SPACE");
        phone.type("e");
        phone.tap("SHIFT");
        phone.type("f");
        phone.pass(1000);
        phone.hold("SHIFT", 500);
        phone.type("gh");
        assertEquals("AbCD EfGH", phone.text());
    }

    @Test
    public void shiftTakenBackTypesASmallLetter() {
        phone.tap("SHIFT");
        phone.pass(1000);
        phone.tap("SHIFT");
        phone.type("a");
        assertEquals("a", phone.text());
    }

    @Test
    public void aSentenceBeginsWithACapitalWhereTheFieldWantsIt() {
        phone.focus(InputType.TYPE_CLASS_TEXT | InputType.TYPE_TEXT_FLAG_CAP_SENTENCES, EditorInfo.IME_ACTION_SEND);
        phone.type("no");
        phone.tap(".");
        phone.tap("SPACE");
        phone.type("yes");
        assertEquals("No. Yes", phone.text());
    }

    @Test
    public void aLongPressOffersAccents() {
        phone.hold("a", 400);
        phone.hold("p", 400);
        phone.press("e");
        phone.pass(400);
        slide(40 * 2 * 2.1f);
        assertEquals("á0è", phone.text());
        phone.tap("SHIFT");
        phone.press("o");  // in the right half: the row goes to the left
        phone.pass(400);
        slide(-40 * 2 * 1f);
        assertEquals("á0èÓ", phone.text());
        phone.type("a");
        assertEquals("á0èÓa", phone.text());
    }

    /** The finger goes sideways and leaves. */
    private void slide(float pixels) {
        Geometry.Placed from = phone.held();
        phone.touch(MotionEvent.ACTION_MOVE, from.area.centerX() + pixels, from.area.centerY());
        phone.release();
    }

    @Test
    public void aFingerThatSlidesTypesWhereItLeaves() {
        phone.press("a");
        slide(phone.key("a").area.width());
        assertEquals("s", phone.text());
        phone.press("m");
        slide(phone.key("m").area.width());  // onto delete, which was not meant
        assertEquals("sm", phone.text());
    }

    @Test
    public void deleteRepeatsAsLongAsItIsHeld() {
        phone.setText("abcdefghijklmnop");
        phone.hold("DELETE", 420 + 5 * 50);
        assertEquals("abcdefghi", phone.text());
        phone.pass(1000);
        assertEquals("abcdefghi", phone.text());
    }

    @Test
    public void deleteTakesWhatIsSelectedOrOneCharacterAsAUserSeesIt() {
        phone.setText("ab👍🏽");
        phone.tap("DELETE");
        assertEquals("ab", phone.text());
        phone.setText("ae\u0301");
        phone.tap("DELETE");
        assertEquals("a", phone.text());
        phone.setText("abcdef");
        phone.editor.setSelection(1, 4);
        phone.tap("DELETE");
        assertEquals("aef", phone.text());
        phone.setText("");
        phone.tap("DELETE");
        assertEquals("", phone.text());
    }

    @Test
    public void twoThumbsMayOverlap() {
        Geometry.Placed first = phone.key("h");
        Geometry.Placed second = phone.key("o");
        phone.touch(MotionEvent.ACTION_DOWN, first.area.centerX(), first.area.centerY());
        phone.touchTwo(MotionEvent.ACTION_POINTER_DOWN, 1, first.area, second.area);
        assertEquals("h", phone.text());
        phone.touchTwo(MotionEvent.ACTION_POINTER_UP, 0, first.area, second.area);
        phone.touchTwo(MotionEvent.ACTION_POINTER_UP, 1, first.area, second.area);
        assertEquals("ho", phone.text());
    }

    @Test
    public void aCancelledTouchTypesNothing() {
        phone.press("a");
        phone.touch(MotionEvent.ACTION_CANCEL, 0, 0);
        phone.pass(1000);
        assertEquals("", phone.text());
        phone.press("DELETE");
        phone.touch(MotionEvent.ACTION_CANCEL, 0, 0);
        phone.setText("abc");
        phone.pass(1000);
        assertEquals("abc", phone.text());
    }

    @Test
    public void anAppThatRestartsTheInputLosesNoKeyAndChangesNoPage() {
        phone.press("a");
        phone.restart();
        phone.release();
        assertEquals("a", phone.text());
        phone.tap("SYMBOLS");
        phone.restart();
        phone.tap("1");
        assertEquals("a1", phone.text());
    }

    @Test
    public void aFieldThatTurnsIntoOneForNumbersGetsTheirPage() {
        phone.editor.setInputType(InputType.TYPE_CLASS_NUMBER);
        phone.restart();
        assertEquals(Page.NUMBERS, phone.keys().state().page());
        phone.editor.setInputType(InputType.TYPE_CLASS_TEXT);
        phone.restart();
        assertEquals(Page.LETTERS, phone.keys().state().page());
    }

    @Test
    public void aKeyThatIsHeldWhileTheKeyboardGoesIsLetGo() {
        phone.press("DELETE");
        phone.hide();
        phone.setText("abc");
        phone.pass(1000);
        assertEquals("abc", phone.text());
    }

    @Test
    public void aQueryIsTheWholeLineWhateverIsSelected() {
        phone.setText("new york hotels");
        phone.editor.setSelection(4, 8);
        assertEquals("new york hotels",
                new Editor(phone.editor.onCreateInputConnection(new EditorInfo())).wholeLine());
    }

    @Test
    public void spaceAfterASymbolLeadsBackToLetters() {
        phone.tap("SYMBOLS");
        phone.tap("&");
        assertEquals(Page.SYMBOLS, phone.keys().state().page());
        phone.tap("SPACE");
        phone.type("q");
        assertEquals("& q", phone.text());
    }

    @Test
    public void enterDoesWhatTheFieldAsksFor() {
        phone.tap("ENTER");
        assertEquals("Search", spoken("ENTER"));
        phone.focus(InputType.TYPE_CLASS_TEXT, EditorInfo.IME_ACTION_GO);
        phone.tap("ENTER");
        assertEquals("Go", spoken("ENTER"));
        assertEquals(Arrays.asList(EditorInfo.IME_ACTION_SEARCH, EditorInfo.IME_ACTION_GO), phone.actions);
        phone.focus(InputType.TYPE_CLASS_TEXT | InputType.TYPE_TEXT_FLAG_MULTI_LINE, 0);
        phone.type("a");
        phone.tap("ENTER");
        phone.type("b");
        assertEquals("a\nb", phone.text());
        assertEquals("Enter", spoken("ENTER"));
        assertEquals(2, phone.actions.size());
    }

    @Test
    public void aFieldThatTakesOnlyKeysGetsThoseOfAScreen() {
        List<KeyEvent> got = new ArrayList<>();
        InputConnection terminal = new BaseInputConnection(phone.editor, true) {
            @Override
            public boolean sendKeyEvent(KeyEvent event) {
                return got.add(event);
            }
        };
        phone.focus(terminal, new EditorInfo());
        phone.tap("a");
        phone.tap("DELETE");
        EditorInfo chat = new EditorInfo();
        chat.inputType = InputType.TYPE_CLASS_TEXT;
        chat.imeOptions = EditorInfo.IME_ACTION_SEND | EditorInfo.IME_FLAG_NO_ENTER_ACTION;
        phone.focus(terminal, chat);
        phone.tap("ENTER");
        assertEquals(Arrays.asList(KeyEvent.KEYCODE_DEL, KeyEvent.KEYCODE_DEL, KeyEvent.KEYCODE_ENTER,
                KeyEvent.KEYCODE_ENTER), got.stream().map(KeyEvent::getKeyCode).collect(Collectors.toList()));
        for (KeyEvent event : got) {
            assertEquals(KeyEvent.FLAG_SOFT_KEYBOARD | KeyEvent.FLAG_KEEP_TOUCH_MODE, event.getFlags());
        }
    }

    @Test
    public void enterShowsTheFieldsOwnWords() {
        phone.editor.setImeActionLabel("Look up", 77);
        phone.search();
        assertEquals("Look up", spoken("ENTER"));
        Key enter = phone.key("ENTER").key;
        assertEquals("Look up", KeyFaces.label(enter, phone.keys().state(), phone.keys().field(), phone.activity));
        phone.tap("ENTER");
        assertEquals(Collections.singletonList(77), phone.actions);
    }

    @Test
    public void aFieldWithoutConnectionIsNoFault() {
        phone.focus(null, new EditorInfo());
        phone.tap("a");
        phone.tap("DELETE");
        phone.tap("ENTER");
        assertEquals("", phone.text());
    }

    @Test
    public void alternatesAreOneCharacterEachAndKeepTheirCapitals() {
        Locale before = Locale.getDefault();
        try {
            Locale.setDefault(new Locale("tr"));  // where i has another capital
            phone.tap("SHIFT");
            phone.type("i");
            assertEquals("I", phone.text());
        } finally {
            Locale.setDefault(before);
        }
        Key s = phone.key("s").key;
        assertEquals(Arrays.asList("ß", "Š", "Ś", "Ş"), Alternates.of(s, true));
        assertEquals("", Alternates.hint(s));
        assertEquals("3", Alternates.hint(phone.key("e").key));
        assertNull(phone.keys().getAccessibilityNodeProvider().createAccessibilityNodeInfo(1000));
    }
}
