/** Something that the sandbox can be asked to do next, under its name. */
interface Armable {
  name: string
  text: string
}

/** An email that the sandbox has accepted: whatever it answered, it went out. */
export interface AcceptedEmail {
  at: Date
  to: string
  messageId: string | null
  /** What was asked for, field by field: two equal ones are the same email. */
  message: Readonly<Record<string, unknown>>
  /** The status that was answered; null when the connection went first. */
  answer: number | null
}

export const samples = {
  new: 'Send a sample payment',
  again: 'Send it again, same ID',
  other: 'Same payment, other event',
  many: '20 at once',
} as const
export type SampleKind = keyof typeof samples

/** The stand-in for the email API on this machine, as far as the page steers it. */
export interface SandboxPanel {
  faults: readonly Armable[]
  reports: readonly Armable[]
  /** Has the next calls, or the reports of the next emails, go so. */
  arm(what: 'fault' | 'report', name: string, times: number): Promise<void>
  /** Forgets what was armed. */
  clear(): Promise<void>
  /** Posts the reports that are held back; says how many. */
  deliverHeld(): Promise<number>
  /** What it has seen since it was started, the newest emails first; of what was before it knows nothing. */
  truth(): Promise<{ startedAt: Date; held: number; emails: AcceptedEmail[] }>
  /** What a sample is made of; undefined when no source with a rule can be sampled. */
  sampled(): { source: string; type: string; otherType: string | undefined } | undefined
  /** Posts a signed sample; its answers in a word each, as `accepted` and `duplicate`. Undefined when no source with a rule can be sampled. */
  send(kind: SampleKind): Promise<{ source: string; type: string; id: string; answers: string[] } | undefined>
}
