//! Panics that nobody drew.
//!
//! A task that panics ends without a word, and so does what it was about: nothing would be seen of
//! it. Handlers that were drawn to panic do so without the hook, so each call of it is a defect.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// What the first panic of a run on this thread said.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From here on panics are noticed, and those before are forgotten.
pub(crate) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A thread that ends has forgotten already.
            let _ = SAID.try_with(|said| {
                said.borrow_mut().get_or_insert_with(|| panic.to_string());
            });
            before(panic);
        }));
    });
    let _ = seen();
}

/// What the first one said, if there was any on this thread.
pub(crate) fn seen() -> Option<String> {
    SAID.with(|said| said.borrow_mut().take())
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, resume_unwind};

    use super::*;

    #[test]
    fn a_panic_is_noticed_unless_it_was_drawn() {
        watch();
        assert!(catch_unwind(|| panic!("the disk is upside down")).is_err());
        assert!(seen().unwrap().contains("upside down"));
        assert!(catch_unwind(|| resume_unwind(Box::new("the handler panics"))).is_err());
        assert_eq!(seen(), None);
        let elsewhere = std::thread::spawn(|| panic!("on another thread")).join();
        assert!(elsewhere.is_err());
        assert_eq!(seen(), None);
    }
}
