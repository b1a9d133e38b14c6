//! The macro method expander (MME) from Turing on: programs of a channel, in RAMs of their own, that methods
//! call and that send methods themselves. Methods of the classes before which it stands go through it: it
//! keeps what they were sent, for macros to read.
//!
//! Its state is of one channel. It grows to what the channel uses of it, some 100 KiB at most: code, data,
//! and what three classes were sent. Macros go on in steps, after any of which they may be left for a while:
//! one without an end is no more than a copy without an end.
//!
//! Not executed: reductions (MME_DMA_REDUCTION), JAL that links, a LOOP in another one. Words of memory are
//! there at once, so there is nothing to wait for (MME_DMA_SYNC).

mod alu;
mod machine;
mod rams;
mod shadow;
mod trap;

use self::machine::{Around, Machine};
pub(crate) use self::machine::{Sent, Step};
use self::rams::{Code, Data};
use self::shadow::ShadowRam;
pub(crate) use self::trap::Stop;
use self::trap::Trap;
use crate::mmu::channel_memory::ChannelMemory;
use gpuvmk_chip::gh100::methods::host;
use gpuvmk_chip::gh100::methods::macros::{self as m, MacroClass};

/// Who sends a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The command stream.
    Stream,
    /// A macro.
    Macro,
}

/// What becomes of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// The class executes it, with this data.
    Pass(u32),
    /// Nothing more.
    Done,
    /// A macro has something to do.
    Macro,
}

/// The MME, with the state of a channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mme {
    code: Code,
    data: Data,
    shadow: ShadowRam,
    /// The macro that runs, and the subchannel of its call.
    running: Option<(Machine, u8)>,
}

/// What a method of a call says: the number of the macro, and whether it begins it.
fn call(method: u16) -> Option<(u16, bool)> {
    let index = method.checked_sub(m::CALL_MME)? / 4;
    let number = index / 2;
    (number < m::MACROS).then_some((number, index.is_multiple_of(2)))
}

impl Mme {
    /// Takes a method of a class.
    ///
    /// # Errors
    /// What hardware raises an exception for, and the MMU's fault of a transfer.
    pub(crate) fn method(
        &mut self,
        memory: &dyn ChannelMemory,
        (class, subchannel): (MacroClass, u8),
        (method, data): (u16, u32),
        sender: Sender,
    ) -> Result<Front, Stop> {
        if let Some((number, begins)) = call(method) {
            self.call((class, subchannel), (number, begins), data, sender)?;
            return Ok(Front::Macro);
        }
        if sender == Sender::Stream {
            self.stream_goes_on()?;
        }
        if sender == Sender::Macro && method < host::ENGINE_METHODS {
            return Err(Trap::IllegalMethod.into());
        }
        if self.code_method(method, data, sender)? || self.data_method(memory, method, data, sender)? {
            return Ok(Front::Done);
        }
        if class.falcon04 == Some(method) {
            // The firmware's answer. The register is one of the graphics pipeline's, which is not there.
            log::debug!("softgpu: firmware writes register {data:#x} for a channel");
            self.shadow.set_scratch(m::SET_MME_SHADOW_SCRATCH, 1);
            return Ok(Front::Done);
        }
        if self.shadow.set_scratch(method, data) {
            return Ok(Front::Done);
        }
        Ok(Front::Pass(self.shadow.pass(class.shadow, method, data)))
    }

    fn call(
        &mut self,
        (class, subchannel): (MacroClass, u8),
        (number, begins): (u16, bool),
        data: u32,
        sender: Sender,
    ) -> Result<(), Trap> {
        if sender == Sender::Macro {
            return Err(Trap::IllegalMethod);
        }
        match (&mut self.running, begins) {
            (Some((machine, of)), false) if *of == subchannel => machine.give(data),
            (Some(_), _) => {
                self.running = None;
                return Err(Trap::MissingData);
            }
            (None, false) => return Err(Trap::ExtraData),
            (None, true) => {
                self.data.fifo().clear();
                self.running = Some((Machine::new(class.shadow, self.code.start(number), data), subchannel));
            }
        }
        Ok(())
    }

    /// Loads of code. False if the method is none.
    fn code_method(&mut self, method: u16, data: u32, sender: Sender) -> Result<bool, Trap> {
        match method {
            m::LOAD_MME_INSTRUCTION_RAM_POINTER
            | m::LOAD_MME_INSTRUCTION_RAM
            | m::LOAD_MME_START_ADDRESS_RAM_POINTER
            | m::LOAD_MME_START_ADDRESS_RAM
                if sender == Sender::Macro =>
            {
                return Err(Trap::IllegalMethod);
            }
            m::LOAD_MME_INSTRUCTION_RAM_POINTER => self.code.point_instruction(data),
            m::LOAD_MME_INSTRUCTION_RAM => self.code.load_instruction(data)?,
            m::LOAD_MME_START_ADDRESS_RAM_POINTER => self.code.point_start(data),
            m::LOAD_MME_START_ADDRESS_RAM => self.code.load_start(data)?,
            m::SET_MME_SHADOW_RAM_CONTROL => self.shadow.set_mode(data),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Transfers. False if the method is none.
    fn data_method(
        &mut self,
        memory: &dyn ChannelMemory,
        method: u16,
        data: u32,
        sender: Sender,
    ) -> Result<bool, Stop> {
        match method {
            m::SET_MME_MEM_ADDRESS_A => self.data.set_address(Some(data), None),
            m::SET_MME_MEM_ADDRESS_B => self.data.set_address(None, Some(data)),
            m::SET_MME_DATA_RAM_ADDRESS => self.data.set_place(data),
            m::MME_DMA_READ => self.data.dma_read(memory, data)?,
            m::MME_DMA_READ_FIFOED if sender == Sender::Stream => return Err(Trap::FifoFromStream.into()),
            m::MME_DMA_READ_FIFOED => self.data.dma_read_fifoed(memory, data)?,
            m::MME_DMA_WRITE => self.data.dma_write(memory, data)?,
            m::MME_DMA_REDUCTION => return Err(Trap::NotExecuted("MME_DMA_REDUCTION").into()),
            m::MME_DMA_SYSMEMBAR | m::MME_DMA_SYNC => {}
            m::SET_MME_DATA_FIFO_CONFIG => self.data.resize_fifo(data)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Moves the macro on by a step. Where there is none, it is over.
    ///
    /// # Errors
    /// Why the macro cannot go on. It is gone then.
    pub(crate) fn step(&mut self) -> Result<Step, Stop> {
        let Some((machine, _)) = &mut self.running else { return Ok(Step::Ended) };
        let mut around = Around { code: &self.code, data: &mut self.data, shadow: &mut self.shadow };
        let step = machine.step(&mut around);
        if matches!(step, Err(_) | Ok(Step::Ended)) {
            self.running = None;
        }
        Ok(step?)
    }

    /// The stream has something else than data for a macro. One that still runs then waits for it in vain.
    ///
    /// # Errors
    /// There was one. It is gone.
    pub(crate) fn stream_goes_on(&mut self) -> Result<(), Stop> {
        if self.running.take().is_some() { Err(Trap::MissingData.into()) } else { Ok(()) }
    }

    /// Ends the macro that runs.
    pub(crate) fn abandon(&mut self) {
        self.running = None;
    }

    /// The subchannel whose call runs.
    pub(crate) fn subchannel(&self) -> Option<u8> {
        self.running.as_ref().map(|(_, subchannel)| *subchannel)
    }
}
