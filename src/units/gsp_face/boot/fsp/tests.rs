use proptest::prelude::*;
use zerocopy::FromZeros;

use super::*;
use gpuvmk_chip::gsp::fsp::{COT_VERSION, NVDM_RESPONSE, nvdm_header};

const BOOT: FspBoot = FspBoot { message_version: COT_VERSION };

fn cot(parameters: u64) -> CotMessage {
    let mut cot = CotMessage::new_zeroed();
    cot.headers.mctp = MCTP_SINGLE_PACKET.into();
    cot.headers.nvdm = nvdm_header(NVDM_COT).into();
    cot.version = COT_VERSION.into();
    cot.size = 0x35c.into();
    cot.boot_params = parameters.into();
    cot
}

/// Sends a message as drivers do: in chunks of 256 bytes.
fn send(fsp: &mut Fsp, message: &[u8]) -> Result<Option<u64>, FspError> {
    let mut at = 0;
    for chunk in message.chunks(256) {
        fsp.write(NV_PFSP_EMEMC, Word::full(AINCW | at)).unwrap();
        for word in chunk.chunks_exact(4) {
            let word = u32::from_le_bytes(word.try_into().unwrap());
            fsp.write(NV_PFSP_EMEMD, Word::full(word)).unwrap();
        }
        at += 256;
    }
    let tail = u32::try_from(message.len() - 4).unwrap();
    fsp.write(NV_PFSP_QUEUE_TAIL, Word::full(tail)).unwrap();
    fsp.write(NV_PFSP_QUEUE_HEAD, Word::full(0))
}

fn answer(fsp: &mut Fsp) -> Vec<u32> {
    assert_eq!((fsp.read(NV_PFSP_MSGQ_HEAD), fsp.read(NV_PFSP_MSGQ_TAIL)), (0, 16));
    fsp.write(NV_PFSP_EMEMC, Word::full(AINCR)).unwrap();
    (0..5).map(|_| fsp.read(NV_PFSP_EMEMD)).collect()
}

#[test]
fn boot_message_is_taken_at_once_and_answered_when_the_boot_is_over() {
    let mut fsp = Fsp::new(BOOT);
    let asked = send(&mut fsp, cot(0x1_2345_6000).as_bytes());
    assert_eq!(asked, Ok(Some(0x1_2345_6000)));
    assert_eq!(fsp.read(NV_PFSP_QUEUE_HEAD), fsp.read(NV_PFSP_QUEUE_TAIL));
    assert_eq!(fsp.read(NV_PFSP_MSGQ_HEAD), fsp.read(NV_PFSP_MSGQ_TAIL));
    fsp.booted(Ok(()));
    assert_eq!(answer(&mut fsp), [0xc000_0000, 0x1510_de7e, 0, 0x14, 0]);
    assert_eq!(nvdm_header(NVDM_RESPONSE), 0x1510_de7e);
}

#[test]
fn failed_boot_is_answered_with_an_error() {
    let mut fsp = Fsp::new(BOOT);
    send(&mut fsp, cot(0).as_bytes()).unwrap();
    fsp.booted(Err(FspError::Parameters { address: 0, why: "no memory" }));
    assert_eq!(answer(&mut fsp)[4], INVALID_DATA);
}

#[test]
fn messages_that_are_none_are_refused_with_a_code() {
    let refused = |message: &[u8]| {
        let mut fsp = Fsp::new(BOOT);
        let asked = send(&mut fsp, message);
        let error = asked.unwrap_err();
        assert_eq!(answer(&mut fsp)[4], error.code());
        error
    };
    let mut message = cot(0);
    message.headers.nvdm = nvdm_header(0x13).into();
    assert_eq!(refused(message.as_bytes()), FspError::Kind(0x13));
    message.headers.nvdm = 0x1410_de7f.into();
    assert!(matches!(refused(message.as_bytes()), FspError::Headers { .. }));
    assert_eq!(refused(&cot(0).as_bytes()[..864]), FspError::Size { bytes: 864 });
    let mut message = cot(0);
    message.version = 2.into();
    assert_eq!(refused(message.as_bytes()), FspError::Version { version: 2, wanted: 1, size: 860 });
}

#[test]
fn pointers_outside_the_memory_are_refused() {
    for (head, tail) in [(0, 1024), (4, 2), (8, 4), (0, 0xffff_fffc), (1024, 1020), (2, 8)] {
        let mut fsp = Fsp::new(BOOT);
        fsp.write(NV_PFSP_QUEUE_TAIL, Word::full(tail)).unwrap();
        let asked = fsp.write(NV_PFSP_QUEUE_HEAD, Word::full(head));
        assert_eq!(asked, Err(FspError::Pointers { head, tail }));
    }
}

#[test]
fn port_past_the_memory_reads_zero_and_wraps() {
    let mut fsp = Fsp::new(BOOT);
    for (reg, value) in [
        (NV_PFSP_EMEMC, AINCW | AINCR | 0xfffc),
        (NV_PFSP_EMEMD, 5),
        (NV_PFSP_EMEMD, 6),
        (NV_PFSP_EMEMC, AINCR | 0xfffc),
    ] {
        fsp.write(reg, Word::full(value)).unwrap();
    }
    assert_eq!((fsp.read(NV_PFSP_EMEMD), fsp.read(NV_PFSP_EMEMD)), (0, 6));
}

proptest! {
    #[test]
    fn any_message_is_taken_or_refused(message in prop::collection::vec(any::<u8>(), 1..260), near: bool) {
        let mut whole = if near { cot(0x1000).as_bytes().to_vec() } else { Vec::new() };
        let start = usize::from(near) * (usize::from(message[0]) * 3);
        for (index, byte) in message.iter().enumerate() {
            match whole.get_mut(start + index) {
                Some(place) => *place = *byte,
                None => whole.push(*byte),
            }
        }
        whole.truncate(EMEM_SIZE);
        whole.resize(whole.len().next_multiple_of(4).max(8), 0);
        let mut fsp = Fsp::new(BOOT);
        prop_assert_ne!(send(&mut fsp, &whole), Ok(None));
        prop_assert_eq!(fsp.read(NV_PFSP_QUEUE_HEAD), fsp.read(NV_PFSP_QUEUE_TAIL));
    }
}
