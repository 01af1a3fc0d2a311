//! Random values that depend only on the seed and on the object they are for.

/// Hash of the seed and of the names and numbers of an object (FNV-1a).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RandomSource(u64);

impl RandomSource {
    pub(crate) fn new(seed: u64) -> Self {
        Self(0xcbf2_9ce4_8422_2325).number(seed)
    }

    pub(crate) fn text(self, text: &str) -> Self {
        // No text contains this byte, so `ab`, `c` and `a`, `bc` have different hashes.
        text.bytes().fold(self, Self::byte).byte(0xff)
    }

    pub(crate) fn number(self, number: u64) -> Self {
        number.to_le_bytes().into_iter().fold(self, Self::byte)
    }

    fn byte(self, byte: u8) -> Self {
        Self((self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    }

    /// Returns a uniformly distributed fraction from 0 to 1, exclusive.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
    pub(crate) fn fraction(self) -> f64 {
        // The finalizer of SplitMix64 separates similar inputs.
        let mut bits = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_spread_evenly_and_repeat() {
        let draw = |n| RandomSource::new(7).text("nightly").number(n).fraction();
        assert_eq!(draw(1), draw(1));
        let mut tenths = [0_u32; 10];
        for n in 0..10_000 {
            let drawn = draw(n);
            let tenth = (1..10).take_while(|tenth| drawn >= f64::from(*tenth) / 10.0).count();
            tenths[tenth] += 1;
        }
        assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "{tenths:?}");
        assert_ne!(RandomSource::new(1).text("ab").text("c").0, RandomSource::new(1).text("a").text("bc").0);
    }
}
