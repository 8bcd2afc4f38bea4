import { excludeForm } from '../../src/sends/address.ts'
import type { State } from '../../src/sends/lifecycle.ts'
import { type Candidate, matchReport } from '../../src/sends/match.ts'

// Worlds of calls and delivery events whose truth is known: which call has sent which message.

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const START = Date.UTC(2026, 10, 1)

/** One call of the email API, and what really came of it. */
export interface WorldCall {
  id: string
  /** Which send it belongs to: a person may have called again. */
  send: number
  recipient: string
  claimedAt: number
  endsAt: number
  says: 'accepted' | 'unknown' | 'refused'
  /** The message ID in the answer. */
  saysId: string | null
  /** The message that went out, if any. */
  sent: string | undefined
  /** A person closes the send then, if it still needs a decision. */
  abandonedAt: number | undefined
}

interface WorldEvent {
  id: string
  messageId: string
  kind: string
  recipient: string
  occurredAt: number
  hasOwnTime: boolean
  /** Each time that it is posted. */
  arrivesAt: number[]
}

export interface World {
  isExclusive: boolean
  calls: WorldCall[]
  events: WorldEvent[]
}

/**
 * `standard`: a shop's day, each mailbox once or twice. `crowded`: few mailboxes under many spellings, every second call unknown, people
 * who send again or close. `together`: as crowded, but all calls begin before any event comes, so that only the order of arrival
 * differs. `shared`: as crowded, and others send with the account too.
 */
export type Style = 'standard' | 'crowded' | 'together' | 'shared'

/** Numbers that look random, the same ones for the same seed. */
export function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** The world of a seed. */
export function makeWorld(seed: number, style: Style): World {
  const random = seeded(seed)
  const chance = (share: number) => random() < share
  const between = (low: number, high: number) => low + random() * (high - low)
  const pick = <Item>(items: readonly Item[]) => items[Math.floor(random() * items.length)] as Item // never empty

  const isStandard = style === 'standard'
  const mailboxes = Array.from(
    { length: isStandard ? 6 : 2 },
    (_, index) => `ada.byron${index}@${pick(['gmail.com', 'example.com'])}`,
  )
  const spelling = (mailbox: string) => {
    const [local = '', domain = ''] = mailbox.split('@')
    if (isStandard || chance(0.5)) return mailbox
    if (domain === 'gmail.com' && chance(0.5)) return `${local.replace('.', '')}@googlemail.com`
    return `${local}+${pick(['shop', 'news'])}@${domain}`
  }
  const span = style === 'together' ? 40 * MINUTE : isStandard ? 72 * HOUR : 12 * HOUR

  const calls: WorldCall[] = []
  const call = (send: number, recipient: string, claimedAt: number) => {
    const id = `${seed}-c${calls.length}`
    const roll = random()
    const [accepted, bare, unknownSent, unknown] = isStandard ? [0.8, 0.84, 0.91, 0.96] : [0.35, 0.45, 0.7, 0.9]
    const says = roll < bare ? 'accepted' : roll < unknown ? 'unknown' : 'refused'
    const sent = roll < unknownSent ? `m-${id}` : undefined
    const endsAt = claimedAt + between(0.1, 15) * SECOND
    const abandonedAt = style === 'crowded' && chance(0.1) ? endsAt + between(0, 6) * HOUR : undefined
    const made = { id, send, recipient, claimedAt, endsAt, says, saysId: roll < accepted ? `m-${id}` : null, sent, abandonedAt }
    calls.push(made as WorldCall) // `says` is one of the three
    if (says === 'unknown' && style === 'crowded' && chance(0.2)) call(send, recipient, endsAt + between(10, 300) * MINUTE)
  }
  const sends = Math.floor(isStandard ? between(5, 9) : between(2, 6))
  for (let send = 0; send < sends; send += 1) {
    const mailbox = isStandard && send < mailboxes.length ? mailboxes[send] : undefined
    call(send, spelling(mailbox ?? pick(mailboxes)), START + between(0, span))
  }

  const events: WorldEvent[] = []
  const report = (messageId: string, recipient: string, sentAt: number) => {
    const bounces = chance(0.06)
    const kinds = [bounces ? 'bounced' : 'delivered', ...(chance(0.4) ? ['opened'] : []), ...(chance(0.03) ? ['complained'] : [])]
    // Some senders leave out the tag, and write the address in their own way.
    const shown =
      !isStandard && chance(0.3) ? recipient.replace(/\+[^@]*/, '') : chance(0.3) ? recipient.toUpperCase() : recipient
    for (const kind of kinds) {
      if (chance(isStandard ? 0.03 : 0.15)) continue
      const occurredAt = sentAt + (kind === 'delivered' && !chance(0.03) ? between(0, 90) * SECOND : between(0, 20) * HOUR)
      const delay = () => (chance(0.9) ? between(0, 5) * SECOND : between(0, 10) * HOUR)
      const first = style === 'together' ? START + HOUR + between(0, 5) * HOUR : occurredAt + delay()
      const arrivesAt = [first, ...(chance(0.2) ? [first + between(0, 2) * HOUR] : [])]
      const hasOwnTime = chance(0.9)
      const id = `${messageId}:${kind}`
      events.push({ id, messageId, kind, recipient: shown, occurredAt: hasOwnTime ? occurredAt : first, hasOwnTime, arrivesAt })
    }
  }
  for (const { sent, recipient, claimedAt, endsAt } of calls)
    if (sent !== undefined) report(sent, recipient, between(claimedAt, endsAt))
  if (style === 'shared')
    for (let index = 0; index < 3; index += 1)
      report(`m-${seed}-foreign${index}`, spelling(pick(mailboxes)), START + between(0, span))
  return { isExclusive: style !== 'shared', calls, events }
}

export interface Played {
  /** The message that each call is taken for to have sent, by its call's ID. */
  bound: Map<string, string>
  /** Calls whose send was unknown, and was closed by an event of theirs. */
  settled: Set<string>
  isBreakerClosed: boolean
}

type Open = WorldCall & { outcome: Candidate['outcome'] | 'refused'; messageId: string | null }
type Arrived = WorldEvent & { parked: boolean }

/** Lets a world happen in the order of its times, with no other rule than the pure one. */
export function play({ calls, events, isExclusive }: World): Played {
  const played: Played = { bound: new Map(), settled: new Set(), isBreakerClosed: true }
  const open: Open[] = []
  const arrived = new Map<string, Arrived>()
  const states = new Map<number, State>()

  const rerun = (recipient: string): void => {
    const key = excludeForm(recipient)
    for (const event of arrived.values()) {
      if (!event.parked || excludeForm(event.recipient) !== key) continue
      const known = open.find(({ messageId }) => messageId === event.messageId)
      if (known) {
        event.parked = false
        const isProof = event.kind === 'delivered' || event.kind === 'bounced'
        const state = states.get(known.send)
        if (isProof && (state === 'needs_review' || state === 'queued')) {
          states.set(known.send, 'sent')
          played.settled.add(known.id)
        }
        rerun(recipient)
        return
      }
      const match = matchReport(
        { ...event, occurredAt: new Date(event.occurredAt), subject: null },
        open
          .filter((it) => excludeForm(it.recipient) === key && it.messageId === null && it.outcome !== 'refused')
          .map((it) => ({
            attempt: it.id,
            recipient: it.recipient,
            claimedAt: new Date(it.claimedAt),
            outcome: it.outcome as Candidate['outcome'], // the refused ones are out
            state: states.get(it.send) as State, // it has one from its start on
            subject: null,
          })),
        {
          others: [...arrived.values()]
            .filter((it) => it.parked && it.messageId !== event.messageId && excludeForm(it.recipient) === key)
            .map((it) => ({ messageId: it.messageId, occurredAt: new Date(it.occurredAt) })),
          isExclusive,
          isBreakerClosed: played.isBreakerClosed,
        },
      )
      if ('parked' in match) {
        if (match.parked === 'foreign') played.isBreakerClosed = false
        continue
      }
      for (const it of open) if (it.id === match.candidate.attempt) it.messageId = event.messageId
      played.bound.set(match.candidate.attempt, event.messageId)
      rerun(recipient)
      return
    }
  }

  const steps: { at: number; run: () => void }[] = []
  for (const call of calls) {
    const it: Open = { ...call, outcome: 'in_flight', messageId: null }
    steps.push({
      at: call.claimedAt,
      run: () => {
        // A person called again; if an event has settled the send meanwhile, nobody does.
        if (states.get(call.send) === 'sent' || states.get(call.send) === 'abandoned') return
        open.push(it)
        states.set(call.send, 'sending')
      },
    })
    steps.push({
      at: call.endsAt,
      run: () => {
        if (!open.includes(it)) return
        it.outcome = call.says
        it.messageId = call.saysId
        if (call.saysId !== null) played.bound.set(call.id, call.saysId)
        states.set(call.send, call.says === 'accepted' ? 'sent' : call.says === 'refused' ? 'rejected' : 'needs_review')
        rerun(call.recipient)
      },
    })
    if (call.abandonedAt !== undefined)
      steps.push({
        at: call.abandonedAt,
        run: () => {
          if (states.get(call.send) === 'needs_review') states.set(call.send, 'abandoned')
        },
      })
  }
  for (const event of events)
    for (const at of event.arrivesAt)
      steps.push({
        at,
        run: () => {
          // What was never called sends no events.
          if (!event.messageId.includes('foreign') && !open.some(({ sent }) => sent === event.messageId)) return
          if (!arrived.has(event.id)) arrived.set(event.id, { ...event, parked: true })
          rerun(event.recipient)
        },
      })
  for (const { run } of steps.sort((a, b) => a.at - b.at)) run()
  return played
}

/** Bindings that aren't true: the call has sent another message, or none. */
export function falseBindings({ calls }: World, bound: ReadonlyMap<string, string>): string[] {
  return calls.flatMap(({ id, sent }) => (bound.has(id) && bound.get(id) !== sent ? [`${id} → ${bound.get(id)}`] : []))
}

/** Calls that nobody could tell had sent, although they had, and whose own proof has come. */
export function unknownButSent({ calls, events }: World): WorldCall[] {
  return calls.filter(({ says, sent }) => says === 'unknown' && sent !== undefined && events.some((it) => it.messageId === sent))
}
