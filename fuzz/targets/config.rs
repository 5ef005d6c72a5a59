//! The configuration: whatever the file holds, it is refused with words or can be explained.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match justonce_config::parse(text, "justonce.toml") {
        Ok(settings) => {
            assert!(!justonce_config::explain(&settings).is_empty());
            let _ = justonce_config::warnings(&settings);
        }
        Err(error) => assert!(!error.to_string().trim().is_empty()),
    }
});
