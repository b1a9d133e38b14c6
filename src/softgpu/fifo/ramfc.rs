//! The host unit's state of one channel, and its place in the instance block (RAMFC).
//!
//! The driver writes the initial state; the PBDMA loads it with the channel and saves it when the channel
//! leaves. RAMFC mirrors the PBDMA's registers (envytools `rnndb/fifo/gf100_pfifo.xml`, PSUBFIFO). What this
//! PBDMA has and hardware keeps elsewhere is in words that drivers leave 0 (0xb0) or in unused bits.

use crate::words::{read_u32, read_u64};
use gpuvmk_chip::gf100::engines::{COPY0_NUMBER, GRAPHICS_NUMBER, SOFTWARE_NUMBER};
use gpuvmk_chip::gf100::ramin::{
    RAMFC_ACQUIRE, RAMFC_CURRENT_ENGINE, RAMFC_DATA0, RAMFC_ENGINES, RAMFC_GP_BASE_HI, RAMFC_GP_BASE_LO,
    RAMFC_GP_GET, RAMFC_GP_PUT, RAMFC_METHOD0, RAMFC_PB_COUNT, RAMFC_PB_GET, RAMFC_PB_HEADER, RAMFC_PB_PUT,
    RAMFC_REFERENCE, RAMFC_SEMAPHORE_A, RAMFC_SEMAPHORE_B, RAMFC_SEMAPHORE_C, RAMFC_SEMAPHORE_D,
    RAMFC_SIGNATURE, RAMFC_USERD_LO, SIGNATURE, aperture,
};
use gpuvmk_chip::stream::DMA::SEC_OP;
use gpuvmk_chip::stream::{Header, Method, Stepping};
use gpuvmk_chip::{Aperture, Engine, PhysicalAddress};

/// Highest address of 40 bits.
pub(crate) const NARROW: u64 = (1 << 40) - 1;

/// Bytes of RAMFC that the PBDMA loads and saves.
pub(crate) const RAMFC_SIZE: usize = 0x100;

/// Only where virtual addresses have more than 40 bits: address bits 56:40 of segments.
const SEGMENT_BASE: u64 = 0xb0;
/// Used only there too: the high word of the semaphore's value.
const SEMAPHORE_VALUE_HIGH: u64 = 0xb4;

/// Widths of a chip's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressMasks {
    /// Highest virtual address.
    pub(crate) va_max: u64,
    /// Address bits of a USERD.
    pub(crate) userd: u64,
}

/// The semaphore methods' operands, and an acquire under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Semaphore {
    pub(crate) address: u64,
    pub(crate) value: u64,
    pub(crate) operation: u32,
    pub(crate) pending: bool,
}

/// The channel as the PBDMA knows it while it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostState {
    /// RAMFC as loaded: what the PBDMA does not interpret goes back unchanged.
    raw: [u8; RAMFC_SIZE],
    /// Virtual addresses have more than 40 bits.
    wide: bool,
    pub(crate) signed: bool,
    pub(crate) userd: PhysicalAddress,
    pub(crate) ring: u64,
    pub(crate) ring_log2: u8,
    /// Next ring entry to fetch.
    pub(crate) gp_get: u32,
    /// End of the valid ring entries.
    pub(crate) gp_put: u32,
    /// Address bits above 39 of the next segments.
    pub(crate) segment_base: u64,
    /// Next word of the current segment.
    pub(crate) get: u64,
    /// End of the current segment.
    pub(crate) end: u64,
    pub(crate) header: Header,
    pub(crate) semaphore: Semaphore,
    pub(crate) reference: u32,
    /// Engine number by subchannel, as SET_OBJECT gives it.
    pub(crate) engines: [u8; 8],
    /// The engine that the last method went to, as a number.
    pub(crate) current_engine: u8,
    /// That engine has not finished.
    pub(crate) operation_pending: bool,
    /// A method that could not be given to its engine yet.
    pub(crate) cached: Option<Method>,
}

/// The number of an engine; Fermi's numbering, continued. `None`: no chip here executes such an engine, and
/// there is none for it.
pub(crate) fn engine_number(engine: Engine) -> Option<u8> {
    match engine {
        Engine::Graphics => Some(GRAPHICS_NUMBER),
        Engine::Copy(copy) => Some(COPY0_NUMBER.saturating_add(copy.get())),
        Engine::Nvdec(_) | Engine::Nvenc(_) | Engine::Nvjpg(_) | Engine::Ofa(_) | Engine::Sec2 => None,
    }
}

/// A RAMFC of a channel that has done nothing, with its USERD in VRAM.
pub(crate) fn compose(userd: u64, ring: u64, ring_log2: u8, engines: [u8; 8]) -> [u8; RAMFC_SIZE] {
    let mut raw = [0; RAMFC_SIZE];
    let base = ring & NARROW | u64::from(RAMFC_GP_BASE_HI::LIMIT2.of(ring_log2.into())) << 32;
    let fields: [(u64, &[u8]); 5] = [
        (RAMFC_USERD_LO, &userd.to_le_bytes()),
        (RAMFC_SIGNATURE, &SIGNATURE.to_le_bytes()),
        (RAMFC_GP_BASE_LO, &base.to_le_bytes()),
        (RAMFC_ENGINES, &engines),
        (RAMFC_CURRENT_ENGINE, &u32::from(SOFTWARE_NUMBER).to_le_bytes()),
    ];
    for (offset, bytes) in fields {
        let place =
            usize::try_from(offset).ok().and_then(|start| raw.get_mut(start..)?.get_mut(..bytes.len()));
        if let Some(place) = place {
            place.copy_from_slice(bytes);
        }
    }
    raw
}

impl HostState {
    /// Loads RAMFC from the start of an instance block.
    pub(crate) fn load(block: &[u8], masks: &AddressMasks) -> Self {
        let va_max = masks.va_max;
        let wide = va_max > NARROW;
        let mut raw = [0; RAMFC_SIZE];
        for (to, from) in raw.iter_mut().zip(block) {
            *to = *from;
        }
        let word = |offset| read_u32(&raw, offset);
        let userd = read_u64(&raw, RAMFC_USERD_LO);
        let aperture = aperture(RAMFC_USERD_LO::TARGET.get(word(RAMFC_USERD_LO))).unwrap_or(Aperture::Vram);
        let base_high = word(RAMFC_GP_BASE_HI);
        let state = word(RAMFC_SEMAPHORE_D);
        let header = word(RAMFC_PB_HEADER);
        let cached = word(RAMFC_METHOD0);
        let [first, second] = [word(RAMFC_ENGINES), word(RAMFC_ENGINES + 4)].map(u32::to_le_bytes);
        let mut engines = [SOFTWARE_NUMBER; 8];
        for (to, from) in engines.iter_mut().zip(first.into_iter().chain(second)) {
            *to = RAMFC_ENGINES::NUMBER.get_u8(from.into());
        }
        let current = word(RAMFC_CURRENT_ENGINE);
        let semaphore_low = word(RAMFC_SEMAPHORE_B) & RAMFC_SEMAPHORE_B::OFFSET_LOWER.mask();
        let value_high = if wide { u64::from(word(SEMAPHORE_VALUE_HIGH)) } else { 0 };
        Self {
            wide,
            signed: RAMFC_SIGNATURE::VALUE.get(word(RAMFC_SIGNATURE)) == SIGNATURE,
            userd: PhysicalAddress { aperture, address: userd & masks.userd },
            ring: u64::from(RAMFC_GP_BASE_HI::ADDR.get(base_high)) << 32 | u64::from(word(RAMFC_GP_BASE_LO)),
            ring_log2: RAMFC_GP_BASE_HI::LIMIT2.get_u8(base_high),
            gp_get: word(RAMFC_GP_GET),
            gp_put: word(RAMFC_GP_PUT),
            segment_base: if wide { u64::from(word(SEGMENT_BASE)) << 40 & va_max } else { 0 },
            get: read_u64(&raw, RAMFC_PB_GET) & va_max,
            end: read_u64(&raw, RAMFC_PB_PUT) & (va_max << 1 | 1),
            header: Header {
                stepping: match RAMFC_PB_HEADER::SEC_OP.get(header) {
                    SEC_OP::INC_METHOD => Stepping::Increment,
                    SEC_OP::ONE_INC => Stepping::IncrementOnce,
                    _ => Stepping::Fixed,
                },
                subchannel: RAMFC_PB_HEADER::SUBCH.get_u8(header),
                method: method_of(header),
                remaining: RAMFC_PB_COUNT::COUNT.get_u16(word(RAMFC_PB_COUNT)),
            },
            semaphore: Semaphore {
                address: (u64::from(word(RAMFC_SEMAPHORE_A)) << 32 | u64::from(semaphore_low)) & va_max,
                value: value_high << 32 | u64::from(word(RAMFC_SEMAPHORE_C)),
                operation: state & !RAMFC_SEMAPHORE_D::ACQUIRE_PENDING.mask(),
                pending: RAMFC_SEMAPHORE_D::ACQUIRE_PENDING.is_set(state),
            },
            reference: word(RAMFC_REFERENCE),
            engines,
            current_engine: RAMFC_CURRENT_ENGINE::NUMBER.get_u8(current),
            operation_pending: RAMFC_CURRENT_ENGINE::PENDING.is_set(current),
            cached: RAMFC_METHOD0::VALID.is_set(cached).then(|| Method {
                subchannel: RAMFC_METHOD0::SUBCH.get_u8(cached),
                method: method_of(cached),
                data: word(RAMFC_DATA0),
            }),
            raw,
        }
    }

    /// RAMFC with the present state.
    pub(crate) fn save(&self) -> [u8; RAMFC_SIZE] {
        let mut raw = self.raw;
        let mut put = |offset: u64, word: u32| {
            let place = usize::try_from(offset).ok().and_then(|offset| raw.get_mut(offset..offset + 4));
            if let Some(place) = place {
                place.copy_from_slice(&word.to_le_bytes());
            }
        };
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or(0);
        put(RAMFC_GP_PUT, self.gp_put);
        put(RAMFC_GP_GET, self.gp_get);
        put(RAMFC_PB_GET, low(self.get));
        put(RAMFC_PB_GET + 4, low(self.get >> 32));
        put(RAMFC_PB_PUT, low(self.end));
        put(RAMFC_PB_PUT + 4, low(self.end >> 32));
        put(RAMFC_REFERENCE, self.reference);
        put(RAMFC_SEMAPHORE_A, low(self.semaphore.address >> 32));
        put(RAMFC_SEMAPHORE_B, low(self.semaphore.address));
        put(RAMFC_SEMAPHORE_C, low(self.semaphore.value));
        if self.wide {
            put(SEMAPHORE_VALUE_HIGH, low(self.semaphore.value >> 32));
            put(SEGMENT_BASE, low(self.segment_base >> 40));
        }
        let pending = RAMFC_SEMAPHORE_D::ACQUIRE_PENDING.of(self.semaphore.pending.into());
        put(RAMFC_SEMAPHORE_D, self.semaphore.operation | pending);
        if self.header.remaining > 0 {
            let mode = match self.header.stepping {
                Stepping::Increment => SEC_OP::INC_METHOD,
                Stepping::Fixed => SEC_OP::NON_INC_METHOD,
                Stepping::IncrementOnce => SEC_OP::ONE_INC,
            };
            let address =
                u32::from(self.header.method) | RAMFC_PB_HEADER::SUBCH.of(self.header.subchannel.into());
            put(RAMFC_PB_HEADER, RAMFC_PB_HEADER::SEC_OP.of(mode) | address);
        }
        put(RAMFC_PB_COUNT, u32::from(self.header.remaining));
        let [a, b, c, d, e, f, g, h] = self.engines;
        put(RAMFC_ENGINES, u32::from_le_bytes([a, b, c, d]));
        put(RAMFC_ENGINES + 4, u32::from_le_bytes([e, f, g, h]));
        let operation = RAMFC_CURRENT_ENGINE::PENDING.of(self.operation_pending.into());
        put(RAMFC_CURRENT_ENGINE, u32::from(self.current_engine) | operation);
        put(
            RAMFC_METHOD0,
            self.cached.map_or(0, |method| method.address_word() | RAMFC_METHOD0::VALID.mask()),
        );
        put(RAMFC_DATA0, self.cached.map_or(0, |method| method.data));
        raw
    }

    /// Ring entries.
    pub(crate) fn ring_entries(&self) -> u64 {
        1 << self.ring_log2
    }

    /// How long an acquire may take, in microseconds; `None`: for ever.
    pub(crate) fn acquire_limit(&self) -> Option<u64> {
        let config = read_u32(&self.raw, RAMFC_ACQUIRE);
        let (limit, shift) = (RAMFC_ACQUIRE::TIMEOUT.get(config), RAMFC_ACQUIRE::TIMEOUT_SHIFT.get(config));
        RAMFC_ACQUIRE::TIMEOUT_ENABLE.is_set(config).then(|| u64::from(limit) << shift)
    }
}

/// The byte address in bits 13:2 of a word.
fn method_of(word: u32) -> u16 {
    let [low, high, _, _] = (word & RAMFC_METHOD0::ADDR.mask()).to_le_bytes();
    u16::from_le_bytes([low, high])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::{GF100, GH100};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn saved_state_loads_as_itself(bytes in proptest::collection::vec(any::<u8>(), RAMFC_SIZE)) {
            for chip in [&GF100, &GH100] {
            let mut state = HostState::load(&bytes, &chip.masks);
            state.gp_get = state.gp_get.wrapping_add(1);
            state.operation_pending = !state.operation_pending;
            let again = HostState::load(&state.save(), &chip.masks);
            let unused_header = Header { remaining: 0, ..again.header };
            if state.header.remaining == 0 {
                state.header = unused_header;
            }
            prop_assert_eq!(HostState { raw: again.raw, ..state }, again);
            }
        }
    }

    #[test]
    fn nouveaus_initial_ramfc_is_an_idle_channel() {
        let mut block = [0; RAMFC_SIZE];
        let words = [
            (0x08, 0x0123_4000),
            (0x10, 0xface),
            (0x30, 0xffff_f902),
            (0x48, 0x0010_0000),
            (0x4c, 0x0009_0012),
            (0x54, 2),
            (0x84, 0x2040_0000),
            (0x94, 0x3000_0fff),
            (0xa4, 0x1f1f_1f1f),
            (0xa8, 0x1f1f_1f1f),
            (0xac, 0x1f),
        ];
        for (offset, word) in words {
            block[offset..offset + 4].copy_from_slice(&u32::to_le_bytes(word));
        }

        let state = HostState::load(&block, &GF100.masks);

        assert!(state.signed);
        assert_eq!(state.userd, PhysicalAddress { aperture: Aperture::Vram, address: 0x0123_4000 });
        assert_eq!((state.ring, state.ring_entries()), (0x12_0010_0000, 512));
        assert_eq!((state.gp_get, state.get, state.end, state.header.remaining), (0, 0, 0, 0));
        assert_eq!(state.engines, [SOFTWARE_NUMBER; 8]);
        assert!(state.cached.is_none() && !state.operation_pending && !state.semaphore.pending);
        assert_eq!(state.acquire_limit(), Some(0xffff << 15));
    }
}
