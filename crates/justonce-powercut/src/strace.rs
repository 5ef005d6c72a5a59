//! Reads what `strace` writes.
//!
//! Every line is a call of a thread, or one half of it if another thread did something meanwhile.
//! All strings are in hexadecimal, so that no comma and no bracket stands in one.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use crate::calls::{Call, Event, PathAt, Recorded, Recording};

/// Strings up to this length are written whole. No single write of the store is longer.
pub const MAX_STRING_BYTES: usize = 64 * 1024 * 1024;

/// The calls that are recorded; those that do not exist on a machine are passed over there.
pub const CALLS: [&str; 42] = [
    "open",
    "openat",
    "openat2",
    "creat",
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev2",
    "truncate",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "lseek",
    "close",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "symlink",
    "symlinkat",
    "link",
    "linkat",
    "mmap",
    "copy_file_range",
    "sendfile",
    "splice",
    "io_uring_setup",
    "sync",
    "syncfs",
    "ioctl",
    "close_range",
    "chdir",
];

/// Reads a whole recording.
///
/// # Errors
///
/// If a line cannot be understood.
pub fn parse(text: &[u8]) -> Result<Recording> {
    let mut reader = Reader::default();
    for line in text.split(|byte| *byte == b'\n') {
        let read = reader.line(line);
        read.with_context(|| {
            let start = line.get(..line.len().min(300)).unwrap_or_default();
            format!("cannot understand the line `{}`", String::from_utf8_lossy(start))
        })?;
    }
    Ok(reader.recording)
}

#[derive(Default)]
struct Reader {
    recording: Recording,
    /// The call that each thread has begun; nothing for one that does not count.
    under_way: HashMap<u32, Begun>,
}

struct Begun {
    call: Option<usize>,
    name: String,
}

impl Reader {
    fn line(&mut self, line: &[u8]) -> Result<()> {
        let Some(space) = line.iter().position(|byte| *byte == b' ') else { return Ok(()) };
        let (thread, rest) = line.split_at(space);
        let thread: u32 = std::str::from_utf8(thread)?.parse().context("there is no thread")?;
        let rest = rest.trim_ascii_start();
        if rest.starts_with(b"+++") || rest.starts_with(b"---") {
            return Ok(());
        }
        if rest.starts_with(b"<... ") {
            return self.ends(thread, rest);
        }
        let open = rest.iter().position(|byte| *byte == b'(').context("there is no call")?;
        let (name, arguments) = rest.split_at(open);
        let name = std::str::from_utf8(name)?.to_owned();
        let arguments = arguments.get(1..).unwrap_or_default();
        let cut_short = arguments.strip_suffix(b" <unfinished ...>");
        // So it is written where the process was killed.
        let cut_short = cut_short.or_else(|| arguments.strip_suffix(b" <detached ...>"));
        if let Some(arguments) = cut_short {
            // The fields that the kernel fills in come with the end.
            let call = self.begins(&name, arguments, None)?;
            self.under_way.insert(thread, Begun { call, name });
            return Ok(());
        }
        let (arguments, result) = split_result(arguments)?;
        if result.is_none_or(|result| result >= 0)
            && let Some(call) = self.begins(&name, arguments, result)?
        {
            self.recording.events.push(Event::Ends(call));
        }
        Ok(())
    }

    fn begins(&mut self, name: &str, args: &[u8], result: Option<i64>) -> Result<Option<usize>> {
        let Some(call) = call(name, args, result)? else { return Ok(None) };
        let number = self.recording.calls.len();
        self.recording.calls.push(Recorded { call, result });
        self.recording.events.push(Event::Begins(number));
        Ok(Some(number))
    }

    fn ends(&mut self, thread: u32, rest: &[u8]) -> Result<()> {
        let Some(begun) = self.under_way.remove(&thread) else {
            bail!("thread {thread} ends what it has not begun");
        };
        let (_, result) = split_result(rest)?;
        let Some(number) = begun.call else { return Ok(()) };
        let Some(recorded) = self.recording.calls.get_mut(number) else { return Ok(()) };
        recorded.result = result;
        match (result, &mut recorded.call) {
            // It was cut short by the end of the process.
            (None, _) => return Ok(()),
            (Some(written), Call::Write { data, .. }) if written >= 0 => {
                let written = usize::try_from(written)?;
                if written < data.len() {
                    *data = data.get(..written).unwrap_or_default().into();
                }
            }
            (Some(failed), _) if failed < 0 => {
                // It changed nothing.
                let name = begun.name;
                recorded.call = Call::Other { name, fds: Vec::new(), paths: Vec::new() };
            }
            _ => {}
        }
        self.recording.events.push(Event::Ends(number));
        Ok(())
    }
}

/// The arguments, and what was returned; nothing for a call that the end of the process cut short.
fn split_result(text: &[u8]) -> Result<(&[u8], Option<i64>)> {
    let at = text.windows(3).rposition(|three| three == b" = ").context("there is no result")?;
    let (arguments, result) = text.split_at(at);
    let arguments = arguments.trim_ascii_end();
    let arguments = arguments.strip_suffix(b")").unwrap_or(arguments);
    let result = result.get(3..).unwrap_or_default();
    let word = result.split(|byte| *byte == b' ').next().unwrap_or_default();
    let word = std::str::from_utf8(word)?;
    if word == "?" {
        return Ok((arguments, None));
    }
    let number = match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).map(|address| i64::from(address == 0)),
        None => return Ok((arguments, Some(word.parse().context("the result is no number")?))),
    };
    Ok((arguments, Some(number?)))
}

/// The arguments of a call.
struct Fields<'a>(Vec<&'a [u8]>);

impl<'a> Fields<'a> {
    fn of(arguments: &'a [u8]) -> Self {
        let mut fields = Vec::new();
        let mut rest = arguments;
        while let Some(at) = find(rest, b", ") {
            let (field, behind) = rest.split_at(at);
            fields.push(field);
            rest = behind.get(2..).unwrap_or_default();
        }
        fields.push(rest);
        Self(fields)
    }

    fn field(&self, place: usize) -> Result<&'a [u8]> {
        self.0.get(place).copied().context("an argument is missing")
    }

    fn word(&self, place: usize) -> Result<&'a str> {
        Ok(std::str::from_utf8(self.field(place)?)?)
    }

    fn number<T: std::str::FromStr>(&self, place: usize) -> Result<T> {
        self.word(place)?.parse().ok().context("an argument is no number")
    }

    fn string(&self, place: usize) -> Result<Vec<u8>> {
        quoted(self.field(place)?)
    }

    /// A path that counts from the current directory.
    fn path(&self, place: usize) -> Result<PathAt> {
        Ok(PathAt { at: None, path: self.string(place)? })
    }

    fn path_at(&self, place: usize) -> Result<PathAt> {
        let at = match self.word(place)? {
            "AT_FDCWD" => None,
            number => Some(number.parse()?),
        };
        Ok(PathAt { at, path: self.string(place + 1)? })
    }
}

fn find(text: &[u8], two: &[u8; 2]) -> Option<usize> {
    let mut from = 0;
    loop {
        let found = text.get(from..)?.iter().position(|byte| *byte == two[0])? + from;
        if text.get(found + 1) == Some(&two[1]) {
            return Some(found);
        }
        from = found + 1;
    }
}

/// A string in hexadecimal.
fn quoted(field: &[u8]) -> Result<Vec<u8>> {
    let inside = field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\""));
    let inside = inside.context("a string is not whole")?;
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (characters, rest) = inside.as_chunks::<4>();
    let decoded = characters.iter().map(|[slash, x, high, low]| {
        let is_hex = *slash == b'\\' && *x == b'x' && rest.is_empty();
        is_hex.then(|| Some(digit(*high)? << 4 | digit(*low)?)).flatten()
    });
    decoded.collect::<Option<_>>().context("a string is not in hexadecimal")
}

/// All strings of a vectored write.
fn all_quoted(arguments: &[u8]) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut parts = arguments.split(|byte| *byte == b'"').skip(1);
    while let Some(inside) = parts.next() {
        all.extend(quoted(&[b"\"", inside, b"\""].concat())?);
        if parts.next().is_some_and(|between| between.starts_with(b"...")) {
            bail!("a string is not whole");
        }
    }
    Ok(all)
}

/// What a line means; nothing if it cannot concern a disk.
fn call(name: &str, arguments: &[u8], result: Option<i64>) -> Result<Option<Call>> {
    let fields = Fields::of(arguments);
    let written = |mut data: Vec<u8>| -> Result<Arc<[u8]>> {
        if let Some(result) = result {
            data.truncate(usize::try_from(result)?);
        }
        Ok(data.into())
    };
    Ok(Some(match name {
        "open" => open(fields.path(0)?, fields.word(1)?),
        "openat" => open(fields.path_at(0)?, fields.word(2)?),
        "creat" => open(fields.path(0)?, "O_WRONLY|O_CREAT|O_TRUNC"),
        "write" => {
            Call::Write { fd: fields.number(0)?, at: None, data: written(fields.string(1)?)? }
        }
        "pwrite64" => {
            let at = Some(fields.number(3)?);
            Call::Write { fd: fields.number(0)?, at, data: written(fields.string(1)?)? }
        }
        "writev" => {
            Call::Write { fd: fields.number(0)?, at: None, data: written(all_quoted(arguments)?)? }
        }
        "ftruncate" => Call::SetLen { fd: fields.number(0)?, len: fields.number(1)? },
        "fsync" | "fdatasync" => Call::Sync { fd: fields.number(0)? },
        "lseek" => Call::Seek { fd: fields.number(0)? },
        "close" => Call::Close { fd: fields.number(0)? },
        "dup" | "dup2" | "dup3" => Call::Duplicate { fd: fields.number(0)? },
        "fcntl" if fields.word(1)?.starts_with("F_DUPFD") => {
            Call::Duplicate { fd: fields.number(0)? }
        }
        "fcntl" => return Ok(None),
        "rename" => Call::Rename { from: fields.path(0)?, to: fields.path(1)? },
        "renameat" | "renameat2" => {
            let is_plain = fields.0.len() < 5 || fields.word(4)? == "0";
            let (from, to) = (fields.path_at(0)?, fields.path_at(2)?);
            if is_plain {
                Call::Rename { from, to }
            } else {
                Call::Other { name: name.to_owned(), fds: Vec::new(), paths: vec![from, to] }
            }
        }
        "unlink" | "rmdir" => Call::Unlink { path: fields.path(0)? },
        "unlinkat" => Call::Unlink { path: fields.path_at(0)? },
        "mkdir" => Call::MakeDirectory { path: fields.path(0)? },
        "mkdirat" => Call::MakeDirectory { path: fields.path_at(0)? },
        "symlink" => Call::Symlink { target: fields.string(0)?, path: fields.path(1)? },
        "symlinkat" => Call::Symlink { target: fields.string(0)?, path: fields.path_at(1)? },
        other => return unknown(other, &fields),
    }))
}

fn open(path: PathAt, flags: &str) -> Call {
    let has = |flag: &str| flags.split('|').any(|word| word == flag);
    Call::Open { path, create: has("O_CREAT"), truncate: has("O_TRUNC"), append: has("O_APPEND") }
}

/// Calls of which the model does not know what they leave.
fn unknown(name: &str, fields: &Fields<'_>) -> Result<Option<Call>> {
    let mut fds = Vec::new();
    let mut paths = Vec::new();
    match name {
        // Only a shared mapping that can be written changes a file.
        "mmap" => {
            if !(fields.word(2)?.contains("PROT_WRITE") && fields.word(3)?.contains("MAP_SHARED")) {
                return Ok(None);
            }
            fds.extend(fields.number::<i32>(4).ok());
        }
        // A clone of a file's blocks is the only one that writes.
        "ioctl" if !fields.word(1)?.contains("CLONE") => return Ok(None),
        "truncate" => paths.push(fields.path(0)?),
        "link" => paths.push(fields.path(1)?),
        "linkat" => paths.push(fields.path_at(2)?),
        "openat2" => paths.push(fields.path_at(0)?),
        "io_uring_setup" | "sync" | "chdir" | "close_range" => bail!("the model has no `{name}`"),
        _ => fds.extend((0..fields.0.len()).filter_map(|place| fields.number::<i32>(place).ok())),
    }
    Ok(Some(Call::Other { name: name.to_owned(), fds, paths }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> String {
        text.bytes().map(|byte| format!("\\x{byte:02x}")).collect()
    }

    #[test]
    fn whole_lines_and_halves_are_read_in_their_order() {
        let text = format!(
            "7 openat(AT_FDCWD, \"{}\", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 3\n\
             7  pwrite64(3, \"{}\", 2, 40 <unfinished ...>\n\
             8 fdatasync(3)          = 0\n\
             7  <... pwrite64 resumed>) = 2\n\
             8 openat(AT_FDCWD, \"{}\", O_RDONLY) = -1 ENOENT (No such file or directory)\n\
             8 write(1, \"{}\", 3)   = 3\n\
             8 fsync(3 <unfinished ...>) = ?\n\
             +++ exited with 0 +++\n",
            hex("/a, b"),
            hex("xy"),
            hex("/none"),
            hex("D\n")
        );
        let text =
            text.replace("+++ exited", "7 +++ exited").replace(" <unfinished ...>) = ?", ") = ?");
        let recording = parse(text.as_bytes()).unwrap();
        let Call::Open { path, create: true, truncate: false, .. } = &recording.calls[0].call
        else {
            panic!("{recording:?}");
        };
        assert_eq!(path.path, b"/a, b");
        use Event::{Begins, Ends};
        let expected =
            [Begins(0), Ends(0), Begins(1), Begins(2), Ends(2), Ends(1), Begins(3), Ends(3)];
        assert_eq!(recording.events[..8], expected);
        let written = Call::Write { fd: 3, at: Some(40), data: b"xy".as_slice().into() };
        assert_eq!(recording.calls[1].call, written);
        assert_eq!(recording.line(recording.events[6]), Some("D"));
        assert_eq!(recording.calls[4].result, None);
    }

    #[test]
    fn a_vectored_write_is_one_write() {
        let text = format!(
            "7 writev(4, [{{iov_base=\"{}\", iov_len=1}}, \
             {{iov_base=\"{}\", iov_len=2}}], 2) = 3\n",
            hex("a"),
            hex("bc")
        );
        let recording = parse(text.as_bytes()).unwrap();
        let Call::Write { data, .. } = &recording.calls[0].call else { panic!("{recording:?}") };
        assert_eq!(&**data, b"abc");
    }

    #[test]
    fn what_the_model_does_not_know_is_not_passed_over() {
        let shared = "7 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 5, 0) = 0x7f00\n";
        let recording = parse(shared.as_bytes()).unwrap();
        assert!(matches!(&recording.calls[0].call, Call::Other { fds, .. } if fds == &[5]));
        assert!(parse(b"7 write(3, \"\\x61\"..., 900) = 900\n").is_err());
        assert!(parse(b"7 io_uring_setup(8, 0x7f) = 4\n").is_err());
    }
}
