package dev.mtnedge.keyboard;

import org.junit.After;
import org.junit.Before;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;

/** Each test has the keyboard in a search box; there is no model. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35, qualifiers = "w411dp-h891dp-port-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
public abstract class PhoneCase {
    Phone phone;

    @Before
    public void start() {
        phone = Phone.withoutModel();
        phone.search();
    }

    @After
    public void stop() {
        phone.close();
    }

    /** The name of a key, as a screen reader says it. */
    String spoken(String key) {
        return KeyFaces.spoken(phone.key(key).key, phone.keys().state(), phone.keys().field(), phone.activity);
    }
}
