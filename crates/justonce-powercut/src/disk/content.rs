//! The contents of a file: copies share what is the same.

use std::collections::BTreeMap;
use std::sync::Arc;

/// How much is shared or copied at once.
const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The contents of a file. What was never written is zero, and takes no memory.
#[derive(Clone, Debug, Default)]
pub struct Content {
    len: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Content {
    /// How long it is.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes at a place.
    pub fn write(&mut self, at: u64, mut data: &[u8]) {
        let mut at = at;
        while !data.is_empty() {
            let (page, offset) = split(at);
            let (part, rest) = data.split_at(data.len().min(PAGE_BYTES - offset));
            let is_zero = part.iter().all(|byte| *byte == 0);
            if !is_zero || self.pages.contains_key(&page) {
                let page = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
                let to = Arc::make_mut(page).get_mut(offset..offset + part.len());
                to.into_iter().for_each(|to| to.copy_from_slice(part));
            }
            at += part.len() as u64;
            data = rest;
        }
        self.len = self.len.max(at);
    }

    /// Cuts it off, or adds zeros.
    pub fn set_len(&mut self, len: u64) {
        let (page, offset) = split(len);
        if len < self.len {
            drop(self.pages.split_off(&(page + u64::from(offset > 0))));
            if let Some(last) = self.pages.get_mut(&page)
                && let Some(behind) = Arc::make_mut(last).get_mut(offset..)
            {
                behind.fill(0);
            }
        }
        self.len = len;
    }

    /// All that is not zero: where it is, and what.
    pub fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> + '_ {
        self.pages.iter().filter_map(|(page, bytes)| {
            let at = page * PAGE_BYTES as u64;
            let length = usize::try_from(self.len.saturating_sub(at)).unwrap_or(PAGE_BYTES);
            bytes.get(..length.min(PAGE_BYTES)).map(|bytes| (at, bytes))
        })
    }

    /// All of it as bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; usize::try_from(self.len).unwrap_or(0)];
        for (at, part) in self.parts() {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let to = all.get_mut(at..at.saturating_add(part.len()));
            to.into_iter().for_each(|to| to.copy_from_slice(part));
        }
        all
    }
}

fn split(at: u64) -> (u64, usize) {
    let page = PAGE_BYTES as u64;
    (at / page, usize::try_from(at % page).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_a_vector_would_be() {
        let mut random = crate::random::Random::seeded(1, 1);
        let (mut content, mut expected) = (Content::default(), Vec::new());
        for _ in 0..500 {
            if random.percent(20) {
                let len = random.below(20_000);
                content.set_len(len as u64);
                expected.resize(len, 0);
            } else {
                let (at, count) = (random.below(20_000), random.below(6000));
                let data = if random.percent(30) { vec![0; count] } else { random.bytes(count) };
                content.write(at as u64, &data);
                if count > 0 {
                    expected.resize(expected.len().max(at + count), 0);
                    expected[at..at + count].copy_from_slice(&data);
                }
            }
            assert!(content.to_vec() == expected);
        }
    }
}
