package dev.mtnedge.keyboard;

import android.annotation.TargetApi;
import android.inputmethodservice.InputMethodService;
import android.os.Build;
import android.os.IBinder;
import android.view.inputmethod.InputMethodManager;

/** The way to the phone's other keyboards: through the service itself since Android 9, through the manager before. */
@SuppressWarnings("deprecation")  // the manager's part, for the Androids before
final class OtherKeyboards {
    private final InputMethodService service;
    private final InputMethodManager manager;

    OtherKeyboards(InputMethodService service) {
        this.service = service;
        manager = (InputMethodManager) service.getSystemService(InputMethodService.INPUT_METHOD_SERVICE);
    }

    /** Whether the system wants a key that leads to the next one; for a window that is there. */
    @TargetApi(Build.VERSION_CODES.P)
    boolean areOffered() {
        return isOld() ? manager.shouldOfferSwitchingToNextInputMethod(token())
                : service.shouldOfferSwitchingToNextInputMethod();
    }

    /** Goes to the next one, or shows all of them where the system knows no next one. */
    @TargetApi(Build.VERSION_CODES.P)
    void next() {
        boolean gone = isOld() ? manager.switchToNextInputMethod(token(), false)
                : service.switchToNextInputMethod(false);
        if (!gone) {
            choose();
        }
    }

    /** Shows all of them. */
    void choose() {
        manager.showInputMethodPicker();
    }

    private static boolean isOld() {
        return Build.VERSION.SDK_INT < Build.VERSION_CODES.P;
    }

    private IBinder token() {
        return service.getWindow().getWindow().getAttributes().token;
    }
}
