use super::*;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{FaultUnit, Hang, HangKind, HostError, MmuFault};
use gpuvmk_chip::{AccessKind, Aperture, FaultReason};

fn value(fifo: &Pfifo, reg: Reg) -> u32 {
    match fifo.read(reg) {
        ReadResult::Value(value) => value,
        other => panic!("{other:?} is no value"),
    }
}

fn write(fifo: &mut Pfifo, reg: Reg, value: u32) -> Vec<Effect> {
    let mut effects = Vec::new();
    fifo.write(reg, Word::full(value), &mut effects);
    effects
}

fn fault(unit: FaultUnit) -> MmuFault {
    MmuFault {
        unit,
        address: GpuVa(0x3f_0000_1008),
        access: AccessKind::Write,
        reason: FaultReason::PageNotPresent,
    }
}

#[test]
fn channel_life_is_told_in_order() {
    let mut fifo = Pfifo::default();
    let instance = PhysicalAddress { aperture: Aperture::Vram, address: 0x1fce_6000 };
    let inst = NV_PFIFO_CHAN_INST.at(5);
    let state = NV_PFIFO_CHAN_STATE.at(5);
    assert_eq!(write(&mut fifo, inst, 0xc001_fce6), [Effect::BindChannel(GuestChannel(5), Some(instance))]);
    assert_eq!(write(&mut fifo, state, 0x001f_0001), [Effect::EnableChannel(GuestChannel(5), true)]);
    assert_eq!(value(&fifo, state), 0x001f_0001);
    assert_eq!(write(&mut fifo, state, 0x001f_0000), [Effect::EnableChannel(GuestChannel(5), false)]);
    assert_eq!(write(&mut fifo, NV_PFIFO_PREEMPT, 5), [Effect::Preempt(GuestChannel(5))]);
    assert_eq!(write(&mut fifo, inst, 0), [Effect::BindChannel(GuestChannel(5), None)]);
}

#[test]
fn runlist_commit_names_list_and_length_and_interrupts_when_done() {
    let mut fifo = Pfifo::default();
    write(&mut fifo, NV_PFIFO_INTR_EN_0, 0x7fff_ffff);
    write(&mut fifo, NV_PFIFO_RUNLIST_BASE, 0x3001_fce5);
    let list = PhysicalAddress { aperture: Aperture::SystemNonCoherent, address: 0x1fce_5000 };
    assert_eq!(write(&mut fifo, NV_PFIFO_RUNLIST, 0x01f0_0002), [Effect::CommitRunlist(list, 2)]);
    assert!(!fifo.pending());
    fifo.runlist_done();
    assert_eq!(value(&fifo, NV_PFIFO_INTR_0), RUNLIST);
    write(&mut fifo, NV_PFIFO_INTR_RUNLIST, 0x1000_0000);
    assert!(!fifo.pending());
}

#[test]
fn non_stall_interrupt_needs_both_enables_and_clears_upwards() {
    let mut fifo = Pfifo::default();
    fifo.non_stall(Engine::COPY0);
    assert_eq!((value(&fifo, NV_PFIFO_INTR_ENGINE_ID), value(&fifo, NV_PFIFO_INTR_0)), (1 << 4, 0));
    write(&mut fifo, NV_PFIFO_INTR_ENGINE_EN, 1);
    assert_eq!(value(&fifo, NV_PFIFO_INTR_0), NON_STALL);
    write(&mut fifo, NV_PFIFO_INTR_EN_0, 0x7fff_ffff);
    assert!(!fifo.pending());
    write(&mut fifo, NV_PFIFO_INTR_EN_0, 0xffff_ffff);
    assert!(fifo.pending());
    write(&mut fifo, NV_PFIFO_INTR_0, 0xffff_ffff);
    assert!(fifo.pending());
    write(&mut fifo, NV_PFIFO_INTR_ENGINE.at(4), 1);
    assert!(!fifo.pending());
}

#[test]
fn fault_record_tells_unit_instance_address_and_reason() {
    let mut fifo = Pfifo::default();
    write(&mut fifo, NV_PFIFO_CHAN_INST.at(1), 0xc000_1234);
    fifo.mmu_fault(Some(GuestChannel(1)), &fault(FaultUnit::Host));
    assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_ID), 1 << 7);
    assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_INST.at(7)), 0x1234);
    assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_VA_LO.at(7)), 0x1000);
    assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_VA_HI.at(7)), 0x3f);
    assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_INFO.at(7)), 0x6c2);
    assert_eq!(value(&fifo, NV_PFIFO_INTR_0), MMU_FAULT);
    write(&mut fifo, NV_PFIFO_MMU_FAULT_ID, 1 << 7);
    assert_eq!(value(&fifo, NV_PFIFO_INTR_0), 0);
}

#[test]
fn second_fault_of_a_unit_appears_when_the_first_was_read() {
    let mut fifo = Pfifo::default();
    for channel in [1u16, 2] {
        write(&mut fifo, NV_PFIFO_CHAN_INST.at(u32::from(channel)), 0xc000_0000 | u32::from(channel));
        fifo.mmu_fault(Some(GuestChannel(channel)), &fault(FaultUnit::Engine(Engine::Graphics)));
    }
    assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_INST.at(0)), 1);
    write(&mut fifo, NV_PFIFO_MMU_FAULT_ID, 1);
    assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_ID), 1);
    assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_INST.at(0)), 2);
    write(&mut fifo, NV_PFIFO_MMU_FAULT_ID, 1);
    assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_ID), 0);
}

#[test]
fn flood_of_faults_is_bounded() {
    let mut fifo = Pfifo::default();
    for _ in 0..10_000 {
        fifo.mmu_fault(Some(GuestChannel(1)), &fault(FaultUnit::Host));
        fifo.host_error(GuestChannel(1), HostError { pbdma: 0, status: 0x20_0000, method: 0, data: 0 });
    }
    for _ in 0..=CHANNELS {
        assert_ne!(value(&fifo, NV_PFIFO_MMU_FAULT_ID), 0);
        write(&mut fifo, NV_PFIFO_MMU_FAULT_ID, 0xffff_ffff);
    }
    assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_ID), 0);
}

#[test]
fn host_error_shows_in_its_pbdma_and_is_cleared_there() {
    let mut fifo = Pfifo::default();
    write(&mut fifo, NV_PPBDMA_INTR_EN_0.at(2), 0xffff_feff);
    let error = HostError { pbdma: 2, status: 0x20_0000, method: 0x3_0200, data: 7 };
    fifo.host_error(GuestChannel(9), error);
    fifo.host_error(GuestChannel(10), error);
    assert_eq!(value(&fifo, NV_PFIFO_INTR_PBDMA_ID), 1 << 2);
    assert_eq!(value(&fifo, NV_PPBDMA_METHOD0.at(2)) & 0x7_3ffc, 0x3_0200);
    assert_eq!(value(&fifo, NV_PPBDMA_DATA0.at(2)), 7);
    assert_eq!(value(&fifo, NV_PPBDMA_CHANNEL.at(2)), 9);
    write(&mut fifo, NV_PPBDMA_INTR_0.at(2), 0x20_0000);
    assert_eq!(value(&fifo, NV_PPBDMA_CHANNEL.at(2)), 10);
    write(&mut fifo, NV_PPBDMA_INTR_0.at(2), 0x20_0000);
    assert_eq!(value(&fifo, NV_PFIFO_INTR_0), 0);
}

#[test]
fn triggered_fault_is_told_once_for_engines_that_exist() {
    let mut fifo = Pfifo::default();
    let trigger = NV_PFIFO_MMU_FAULT_TRIGGER.at(0);
    let expected = Effect::TriggerFault { engine: Engine::Graphics, unit: 0 };
    assert_eq!(write(&mut fifo, trigger, 0x100), [expected]);
    assert_eq!(write(&mut fifo, trigger, 0x100), []);
    assert_eq!(write(&mut fifo, NV_PFIFO_MMU_FAULT_TRIGGER.at(1), 0x100), []);
    fifo.triggered_fault(0, None);
    assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_ID), 1);
}

/// As nouveau recovers: the error, the engine that stands, the fault that it asks for, the channel that it
/// stops.
#[test]
fn hung_channels_are_shown_one_after_the_other_until_the_driver_stops_them() {
    let mut fifo = Pfifo::default();
    write(&mut fifo, NV_PFIFO_INTR_EN_0, 0x7fff_ffff);
    for channel in [3, 5] {
        write(&mut fifo, NV_PFIFO_CHAN_INST.at(channel), 0xc000_1000 | channel);
        write(&mut fifo, NV_PFIFO_CHAN_STATE.at(channel), 0x001f_0001);
    }
    let hang = Hang { engine: Engine::Graphics, kind: HangKind::Engine };
    fifo.hung(GuestChannel(3), hang);
    fifo.hung(GuestChannel(5), hang);
    let status = NV_PFIFO_ENGINE_STATUS.at(0);

    for channel in [3, 5] {
        assert_eq!(value(&fifo, NV_PFIFO_INTR_0), SCHED_ERROR);
        assert_eq!(value(&fifo, NV_PFIFO_SCHED_ERROR), 0x0a);
        assert_eq!(value(&fifo, status) & 0x1000_407f, 0x1000_4000 | channel);
        assert_eq!(fifo.read(NV_PFIFO_ENGINE_STATUS.at(4)), ReadResult::EngineStatus(Engine::COPY0));
        write(&mut fifo, NV_PFIFO_INTR_0, SCHED_ERROR);
        assert_eq!(write(&mut fifo, NV_PFIFO_MMU_FAULT_TRIGGER.at(0), 0x100), []);
        assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_ID), 1);
        assert_eq!(value(&fifo, NV_PFIFO_MMU_FAULT_INST.at(0)), 0x1000 | channel);
        write(&mut fifo, NV_PFIFO_MMU_FAULT_ID, 1);
        write(&mut fifo, NV_PFIFO_MMU_FAULT_TRIGGER.at(0), 0);
        assert!(!fifo.pending());
        write(&mut fifo, NV_PFIFO_CHAN_STATE.at(channel), 0x001f_0000);
    }

    assert!(!fifo.pending());
    assert_eq!(value(&fifo, NV_PFIFO_SCHED_ERROR), 0);
    assert_eq!(fifo.read(status), ReadResult::EngineStatus(Engine::Graphics));
}

#[test]
fn stuck_acquire_is_an_interrupt_of_the_pbdma() {
    let mut fifo = Pfifo::default();
    write(&mut fifo, NV_PPBDMA_INTR_EN_0.at(0), 0xffff_feff);
    fifo.hung(GuestChannel(9), Hang { engine: Engine::Graphics, kind: HangKind::Acquire });
    assert_eq!(value(&fifo, NV_PPBDMA_INTR_0.at(0)), 1 << 26);
    assert_eq!(value(&fifo, NV_PPBDMA_CHANNEL.at(0)), 9);
}

#[test]
fn reset_unbinds_channels_and_lifts_the_block() {
    let mut fifo = Pfifo::default();
    write(&mut fifo, NV_PFIFO_CHAN_INST.at(3), 0xc000_0001);
    assert_eq!(write(&mut fifo, NV_PFIFO_SCHED_DISABLE, u32::MAX), [Effect::BlockRunlist(true)]);
    let mut effects = Vec::new();
    fifo.reset(&mut effects);
    assert_eq!(effects, [Effect::BindChannel(GuestChannel(3), None), Effect::BlockRunlist(false)]);
    assert_eq!(value(&fifo, NV_PFIFO_CHAN_INST.at(3)), 0);
}

#[test]
fn poll_area_is_known_when_enabled() {
    let mut fifo = Pfifo::default();
    write(&mut fifo, NV_PFIFO_USERD_POLL, 0x0000_0123);
    assert_eq!(fifo.poll_area(), None);
    write(&mut fifo, NV_PFIFO_USERD_POLL, 0x1000_0123);
    assert_eq!(fifo.poll_area(), Some(0x12_3000));
}

#[test]
fn enable_bits_of_absent_pbdmas_stay_clear() {
    let mut fifo = Pfifo::default();
    write(&mut fifo, NV_PFIFO_PBDMA_ENABLE, u32::MAX);
    assert_eq!(value(&fifo, NV_PFIFO_PBDMA_ENABLE), 0x7);
}
