import { setTimeout as sleep } from 'node:timers/promises'
import type { InboxiliSandbox } from '../sandbox/inboxili.ts'
import { sampleRequest } from '../sandbox/samples.ts'
import type { Launched } from './launch.ts'

const LONGEST_WAIT_MS = 20_000

interface Story {
  title: string
  /** Says what happens; throws where it ends otherwise. */
  tell(launched: Launched, sandbox: InboxiliSandbox): Promise<void>
}

/** What the demo shows, in this order. */
export const stories: readonly Story[] = [
  {
    title: 'One payment, posted three times',
    async tell(launched, sandbox) {
      const ada = payment(launched, 'ada')
      for (const expected of ['accepted', 'duplicate', 'duplicate']) {
        const answer = await ada.post()
        step(`the provider posts ${ada.id} → ${answer}`)
        check(answer === expected, `expected ${expected}`)
      }
      await ada.until('delivered')
      step(`the email API was called ${times(callsFor(sandbox, ada))}, and its report says: delivered`)
      check(callsFor(sandbox, ada) === 1, 'expected one call')
    },
  },
  {
    title: '"Delivered" arrives before the send is recorded',
    async tell(launched, sandbox) {
      const bea = payment(launched, 'bea')
      sandbox.armReports({ kind: 'before_answer' }, { to: bea.email })
      await bea.post()
      await bea.until('delivered')
      step('the report came while the call was still open; it was kept, and joined once the answer was recorded: delivered')
      check(callsFor(sandbox, bea) === 1, 'expected one call')
    },
  },
  {
    title: 'The answer of the email API is lost',
    async tell(launched, sandbox) {
      const cy = payment(launched, 'cy')
      loseAnswers(sandbox, cy.email, 'never')
      await cy.post()
      const unknown = await cy.until('needs_review')
      step(`the connection broke after the request → needs_review (${unknown.last_error})`)
      await cy.post()
      await cy.replay()
      await cy.until('needs_review')
      step(`the event is redelivered, and replayed by a person → still needs_review, calls so far: ${callsFor(sandbox, cy)}`)
      check(callsFor(sandbox, cy) === 1, 'expected no second call')
    },
  },
  {
    title: 'The email API refuses',
    async tell(launched, sandbox) {
      const di = payment(launched, 'di')
      sandbox.arm(
        { kind: 'status', status: 422, code: 'sender_not_verified', message: 'verify your sender first' },
        { to: di.email },
      )
      await di.post()
      const refused = await di.until('rejected')
      step(`${refused.last_error} → rejected: surely not sent, so the key is free`)
      await di.replay()
      await di.until('delivered')
      step(`the sender is verified now; the event is replayed → delivered, calls in all: ${callsFor(sandbox, di)}`)
      check(acceptedFor(sandbox, di) === 1, 'expected one email')
    },
  },
  {
    title: 'A lost answer is made up for by a delivery event',
    async tell(launched, sandbox) {
      const eve = payment(launched, 'eve')
      loseAnswers(sandbox, eve.email, 'hold')
      await eve.post()
      await eve.until('needs_review')
      step('the connection broke after the request → needs_review, and nobody knows the ID of the message')
      await sandbox.deliverHeld()
      const { settled_by, settlements } = await eve.until('delivered')
      step(`"delivered" comes, to ${eve.email}: one call to this recipient is open, and all agrees → delivered`)
      step(
        `the evidence is kept: settled by ${settled_by}, grade ${settlements[0]?.grade}; calls so far: ${callsFor(sandbox, eve)}`,
      )
      check(callsFor(sandbox, eve) === 1, 'expected no second call')
    },
  },
  {
    title: 'Two lost answers to one customer',
    async tell(launched, sandbox) {
      const first = payment(launched, 'flo', 1)
      const second = payment(launched, 'flo', 2)
      loseAnswers(sandbox, first.email, 'hold', 2)
      for (const one of [first, second]) {
        await one.post()
        await one.until('needs_review')
      }
      const [messageId = ''] = sandbox.ledger.filter(({ to }) => to === first.email).map((call) => call.messageId ?? '')
      await sandbox.deliverHeld()
      const parked = await first.untilParked(messageId)
      for (const one of [first, second]) await one.until('needs_review')
      step(
        `two calls end unknown, and two "delivered" come to ${first.email}: each could be either’s → ${parked}, nothing is guessed`,
      )
      await first.resolve({ decision: 'sent', message_id: messageId, reason: 'its ID stands in the log of Inboxili' })
      await first.until('delivered')
      step(
        'a person looks the first one up in the log of Inboxili, and resolves it as sent, with the ID that stands there → delivered',
      )
      await second.until('delivered')
      step('now the other event has one call that it can be of, and all agrees → delivered')
      check(callsFor(sandbox, first) === 2, 'expected two calls')
    },
  },
  {
    title: 'A worker is killed between claim and call',
    async tell(launched, sandbox) {
      const gil = payment(launched, 'gil')
      await launched.restartWorker({ ONCEHOOK_FAULTS: 'send.claimed=kill' })
      await gil.post()
      await gil.until('claimed')
      step(`the worker took the key and was killed right after that → claimed, calls so far: ${callsFor(sandbox, gil)}`)
      const { attempts } = await gil.until('delivered')
      step(
        `the next one finds that nobody called, and sends it → delivered; attempts: ${attempts.map((it) => it.outcome).join(', ')}`,
      )
      check(callsFor(sandbox, gil) === 1, 'expected one call')
    },
  },
]

interface SendView {
  status: string
  version: number
  last_error: string | null
  settled_by: string | null
  attempts: { outcome: string }[]
  settlements: { grade: string }[]
}

/** One customer's payment: one event that can be posted, redelivered and replayed, and the send that it causes. */
function payment({ url, config, operatorToken }: Launched, customer: string, number?: number) {
  const source = config.sources.get('stripe')
  const email = `${customer}@example.com`
  const id = `evt_demo_${customer}${number ?? ''}`
  const sendPath = `/v1/sends/${encodeURIComponent(`invoice:${id.replace('evt_', 'in_')}:paid`)}`
  const api = async (path: string, body?: object): Promise<Response> =>
    fetch(`${url}${path}`, {
      headers: { authorization: `Bearer ${operatorToken}`, 'content-type': 'application/json' },
      ...(body && { method: 'POST', body: JSON.stringify(body) }),
    })
  // The API's own answers, in the fields that are read here.
  const read = async <View>(path: string, body?: object): Promise<View> => {
    const response = await api(path, body)
    if (!response.ok) throw new Error(`${path} → ${response.status}`)
    return (await response.json()) as View
  }
  const findEvent = async (ofSource: string, eventId: string) => {
    const { events } = await read<{ events: { id: string }[] }>(
      `/v1/events?source=${ofSource}&event_id=${encodeURIComponent(eventId)}`,
    )
    return (
      events[0] && read<{ id: string; status: string; report: { parked: string | null } | null }>(`/v1/events/${events[0].id}`)
    )
  }
  return {
    id,
    email,
    /** The provider posts it, signed anew each time. */
    async post(): Promise<string> {
      const nowSeconds = Math.floor(Date.now() / 1000)
      const { headers, body } = sampleRequest({
        provider: 'stripe',
        secret: source?.secrets[0] ?? '',
        type: 'invoice.paid',
        id,
        email,
        nowSeconds,
      })
      const response = await fetch(`${url}/webhooks/stripe`, { method: 'POST', headers, body: new Uint8Array(body) })
      return ((await response.json()) as { status: string }).status
    },
    async replay(): Promise<void> {
      const event = await findEvent('stripe', id)
      await read(`/v1/events/${event?.id}/replay`, {})
      await until(async () => (await findEvent('stripe', id))?.status === 'processed', 'the replay is processed')
    },
    /** A person's decision. */
    async resolve(decision: object): Promise<void> {
      const { version } = await read<SendView>(sendPath)
      await read(`${sendPath}/resolve`, { ...decision, version })
    },
    async until(status: string): Promise<SendView> {
      return until(async () => {
        const response = await api(sendPath)
        const send = response.ok ? ((await response.json()) as SendView) : undefined
        return send?.status === status && send
      }, `the send of ${id} is ${status}`)
    },
    /** Why the delivery event of this message settles nothing. */
    untilParked: (messageId: string): Promise<string> =>
      until(async () => (await findEvent('inboxili', `${messageId}:delivered`))?.report?.parked, 'the event is parked'),
  }
}

type Payment = Pick<ReturnType<typeof payment>, 'email'>

const callsTo = (sandbox: InboxiliSandbox, { email }: Payment) => sandbox.ledger.filter((call) => call.to === email)
const callsFor = (sandbox: InboxiliSandbox, payment: Payment) => callsTo(sandbox, payment).length
const acceptedFor = (sandbox: InboxiliSandbox, payment: Payment) =>
  callsTo(sandbox, payment).filter((call) => call.accepted).length

/** The next emails to somebody go out, but their answers get lost. */
function loseAnswers(sandbox: InboxiliSandbox, to: string, report: 'never' | 'hold', count = 1): void {
  sandbox.arm({ kind: 'cut_after_accept' }, { to, times: count })
  sandbox.armReports({ kind: report }, { to, times: count })
}

async function until<Answer>(question: () => Promise<Answer | false | null | undefined>, what: string): Promise<Answer> {
  for (const end = Date.now() + LONGEST_WAIT_MS; ; await sleep(50)) {
    const answer = await question()
    if (answer) return answer
    if (Date.now() > end) throw new Error(`waited in vain until ${what}`)
  }
}

function step(text: string): void {
  say(`   ${text}`)
}
const times = (count: number) => (count === 1 ? 'once' : `${count} times`)
function check(holds: boolean, expectation: string): void {
  if (!holds) throw new Error(expectation)
}

/** Writes one line. */
export function say(text: string): void {
  process.stdout.write(`${text}\n`)
}
