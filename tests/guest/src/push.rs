//! Command words as a Fermi channel takes them: a method header, then data.
//!
//! Header (32 bits): 31:29 how the method advances (1 = by four after each word, 4 = the data is in the header),
//! 28:16 count of words or the immediate value, 15:13 subchannel, 11:0 method address / 4.

/// A subchannel: which bound object methods go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subchannel(pub u32);

/// A method's address inside its class.
pub type Method = u32;

/// Binds a class to a subchannel; a host method, as all below 0x100 are.
const SET_OBJECT: Method = 0x000;
/// High word of the semaphore's address; low word, payload and operation follow.
const SEMAPHORE_A: Method = 0x010;
/// Semaphore operation: write the payload, then (as bit 24 is clear) a time stamp at +8.
const SEMAPHORE_RELEASE_WITH_TIME: u32 = 0x2;

const INCREMENTING: u32 = 1;
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

    /// Writes a value of at most 13 bits to `method`, without a data word.
    pub fn immediate(&mut self, subchannel: Subchannel, method: Method, value: u32) {
        self.words.push(header(IMMEDIATE, value & 0x1fff, subchannel, method));
    }

    /// Binds `class` to `subchannel`.
    pub fn bind(&mut self, subchannel: Subchannel, class: u16) {
        self.methods(subchannel, SET_OBJECT, &[u32::from(class)]);
    }

    /// Writes `payload` to `address`, and the GPU's time to `address + 8`, once all before is done.
    pub fn release_with_time(&mut self, subchannel: Subchannel, address: u64, payload: u32) {
        let [high, low] = split(address);
        self.methods(subchannel, SEMAPHORE_A, &[high, low, payload, SEMAPHORE_RELEASE_WITH_TIME]);
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

    #[test]
    fn release_names_address_payload_and_operation() {
        let mut commands = Commands::new();
        commands.release_with_time(Subchannel(0), 0x12_3456_7890, 7);
        assert_eq!(words(&commands), [0x2004_0004, 0x12, 0x3456_7890, 7, 2]);
    }
}
