//! Command words as channels take them, from Fermi to Hopper: a method header, then data.
//!
//! Header (32 bits): 31:29 how the method advances (1 = by four after each word, 3 = not at all, 4 = the data
//! is in the header), 28:16 count of words or the immediate value, 15:13 subchannel, 11:0 method address / 4.

/// A subchannel: which bound object methods go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subchannel(pub u32);

/// A method's address inside its class.
pub type Method = u32;

/// Binds a class to a subchannel; a host method, as all below 0x100 are.
const SET_OBJECT: Method = 0x000;

const INCREMENTING: u32 = 1;
const REPEATED: u32 = 3;
const IMMEDIATE: u32 = 4;

/// Command words being put together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commands {
    words: Vec<u32>,
}

impl Commands {
    /// No commands yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes `data` to the methods from `method` on.
    pub fn methods(&mut self, subchannel: Subchannel, method: Method, data: &[u32]) {
        // 13 bits of count; callers write a dozen words at most.
        let count = u32::try_from(data.len()).unwrap_or(0) & 0x1fff;
        self.words.push(header(INCREMENTING, count, subchannel, method));
        self.words.extend_from_slice(data);
    }

    /// Writes all of `data` to the one method `method`.
    pub fn repeated(&mut self, subchannel: Subchannel, method: Method, data: &[u32]) {
        let count = u32::try_from(data.len()).unwrap_or(0) & 0x1fff;
        self.words.push(header(REPEATED, count, subchannel, method));
        self.words.extend_from_slice(data);
    }

    /// Writes a value of at most 13 bits to `method`, without a data word.
    pub fn immediate(&mut self, subchannel: Subchannel, method: Method, value: u32) {
        self.words.push(header(IMMEDIATE, value & 0x1fff, subchannel, method));
    }

    /// Binds `class` to `subchannel`.
    pub fn bind(&mut self, subchannel: Subchannel, class: u16) {
        self.methods(subchannel, SET_OBJECT, &[u32::from(class)]);
    }

    /// Adds words as they are.
    pub fn raw(&mut self, words: &[u32]) {
        self.words.extend_from_slice(words);
    }

    /// Adds all of `other`'s words.
    pub fn extend(&mut self, other: &Self) {
        self.words.extend_from_slice(&other.words);
    }

    /// The words as they lie in memory.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// An address as a high and a low word.
pub fn split(address: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = address.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

fn header(kind: u32, count: u32, subchannel: Subchannel, method: Method) -> u32 {
    kind << 29 | count << 16 | subchannel.0 << 13 | method >> 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(commands: &Commands) -> Vec<u32> {
        commands.to_bytes().chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn methods_are_a_header_and_their_data() {
        let mut commands = Commands::new();
        commands.methods(Subchannel(2), 0x30c, &[0x12, 0x3456_7000]);
        assert_eq!(words(&commands), [0x2002_40c3, 0x12, 0x3456_7000]);
    }

    #[test]
    fn repeated_words_go_to_one_method() {
        let mut commands = Commands::new();
        commands.repeated(Subchannel(1), 0x1b4, &[5, 6]);
        assert_eq!(words(&commands), [0x6002_206d, 5, 6]);
    }

    #[test]
    fn immediate_value_is_in_the_header() {
        let mut commands = Commands::new();
        commands.immediate(Subchannel(4), 0x300, 0x110);
        assert_eq!(words(&commands), [0x8110_80c0]);
    }

    #[test]
    fn binding_writes_the_class_to_method_zero() {
        let mut commands = Commands::new();
        commands.bind(Subchannel(2), 0x9039);
        assert_eq!(words(&commands), [0x2001_4000, 0x9039]);
    }
}
