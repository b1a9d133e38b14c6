//! Operations.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $op:ident $name:literal,)*) => {
        /// What an instruction does. Operations of one mnemonic that compute different things have
        /// variants of their own (IMAD, IMAD.WIDE, IMAD.HI).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the name that is printed says which operation it is")]
        pub enum Opcode { $($(#[$doc])* $op,)* }

        impl Opcode {
            /// The mnemonic.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$op => $name,)* }
            }
        }
    };
}

opcodes! {
    Mov "MOV", Umov "UMOV", Sel "SEL", Usel "USEL", Prmt "PRMT", Uprmt "UPRMT",
    Iadd3 "IADD3", Uiadd3 "UIADD3", Iadd "IADD", Viadd "VIADD", Viaddmnmx "VIADDMNMX",
    Imad "IMAD", ImadWide "IMAD.WIDE", ImadHi "IMAD.HI", Uimad "UIMAD", UimadWide "UIMAD.WIDE", UimadHi "UIMAD.HI",
    Isetp "ISETP", Uisetp "UISETP", Lea "LEA", Ulea "ULEA", Lop3 "LOP3", Ulop3 "ULOP3", Plop3 "PLOP3",
    Uplop3 "UPLOP3", Shf "SHF", Ushf "USHF", Imnmx "IMNMX", Vimnmx "VIMNMX", VimnmxU16x2 "VIMNMX.U16x2",
    VimnmxS16x2 "VIMNMX.S16x2", Uvimnmx "UVIMNMX", Iabs "IABS",
    Popc "POPC", Upopc "UPOPC", Flo "FLO", Uflo "UFLO", Brev "BREV", Ubrev "UBREV", Bmsk "BMSK", Ubmsk "UBMSK",
    Sgxt "SGXT", Usgxt "USGXT", Idp4a "IDP.4A", Idp2a "IDP.2A", Idp2aHi "IDP.2A.HI",
    Vabsdiff "VABSDIFF", Vabsdiff4 "VABSDIFF4", P2r "P2R", R2p "R2P",
    Up2ur "UP2UR", Ur2up "UR2UP",
    Lepc "LEPC",
    Fadd "FADD", Uffma "UFFMA", Fmul "FMUL", Ffma "FFMA", Fmnmx "FMNMX", Fsel "FSEL", Fset "FSET", Fsetp "FSETP",
    Fswzadd "FSWZADD", Fchk "FCHK", Mufu "MUFU", Frnd "FRND", F2f "F2F", F2i "F2I", I2f "I2F", I2fp "I2FP",
    F2fp "F2FP", I2i "I2I", I2ip "I2IP",
    Dadd "DADD", Dmul "DMUL", Dfma "DFMA", Dsetp "DSETP",
    Hadd2 "HADD2", Hfma2 "HFMA2", Hfma2Mma "HFMA2.MMA", Hmul2 "HMUL2", Hset2 "HSET2", Hsetp2 "HSETP2",
    Hmnmx2 "HMNMX2",
    Hmma "HMMA", Imma "IMMA", Bmma "BMMA", Dmma "DMMA", Movm "MOVM", Ldsm "LDSM", Stsm "STSM",
    Ldg "LDG", Ld "LD", Lds "LDS", Ldl "LDL", Ldc "LDC", Uldc "ULDC", Ldcu "LDCU", Stg "STG", St "ST", Sts "STS",
    Stl "STL", Atomg "ATOMG", AtomgCas "ATOMG.CAS", Atom "ATOM", AtomCas "ATOM.CAS", Atoms "ATOMS",
    AtomsCas "ATOMS.CAS", AtomsPopcInc "ATOMS.POPC.INC", AtomsArrive "ATOMS.ARRIVE", Red "RED", Redg "REDG", Ldgsts "LDGSTS", Ldgdepbar "LDGDEPBAR", Depbar "DEPBAR",
    Cctl "CCTL", Membar "MEMBAR", Errbar "ERRBAR", Cgaerrbar "CGAERRBAR", Qspc "QSPC",
    SyncsExch "SYNCS.EXCH", SyncsArrive "SYNCS.ARRIVE", SyncsPhasechk "SYNCS.PHASECHK", SyncsCctl "SYNCS.CCTL",
    Bra "BRA", Brx "BRX", Brxu "BRXU", Jmp "JMP", CallAbs "CALL.ABS", CallRel "CALL.REL", RetRel "RET.REL",
    RetAbs "RET.ABS", Exit "EXIT", Kill "KILL", Bssy "BSSY", Bsync "BSYNC", Break "BREAK", Warpsync "WARPSYNC",
    WarpsyncCollective "WARPSYNC.COLLECTIVE", Endcollective "ENDCOLLECTIVE", Yield "YIELD", BmovToReg "BMOV.TO_REG",
    BmovFromReg "BMOV.FROM_REG", BmovPquad "BMOV.PQUAD", Bpt "BPT", Nanosleep "NANOSLEEP", Nop "NOP", Bar "BAR",
    B2r "B2R",
    Vote "VOTE", Voteu "VOTEU", Match "MATCH", Redux "REDUX", Credux "CREDUX", Elect "ELECT", Shfl "SHFL",
    R2ur "R2UR", S2r "S2R", S2ur "S2UR", Cs2r "CS2R", Cs2ur "CS2UR", UcgabarArv "UCGABAR_ARV",
    UcgabarWait "UCGABAR_WAIT",
}
