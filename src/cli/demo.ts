import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { sampleRequest } from '../sandbox/samples.ts'
import { readSettings } from '../settings.ts'
import { type Launched, launch } from './launch.ts'

const sampleConfig = fileURLToPath(new URL('../../oncehook.config.ts', import.meta.url))
const LONGEST_WAIT_MS = 20_000

/** `oncehook demo`: tells four stories on a service of its own, in a temporary folder. Exit code 1 when one ends otherwise. */
export async function demoCommand(): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), 'oncehook-demo-'))
  chmodSync(directory, 0o755)
  const environment = { NODE_ENV: 'development', PORT: '0', HOST: '127.0.0.1', ONCEHOOK_CONFIG: sampleConfig, LOG_LEVEL: 'error' }
  const stderr = new Writable({ write: (chunk, _encoding, done) => void process.stderr.write(chunk, () => done()) })
  const interruption = new Error('interrupted')
  const interrupted = new Promise<never>((_done, fail) => {
    for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => fail(interruption))
  })
  // It may come while nobody waits for it yet.
  interrupted.catch(() => undefined)
  let launched: Launched | undefined
  try {
    say('Starting a database, the email sandbox, the service and a worker …')
    launched = await launch(readSettings(environment), { directory, output: stderr, environment })
    await Promise.race([tell(launched), interrupted])
    say('\nEvery email went out once, and what is unknown waits for a person.')
    return 0
  } catch (error) {
    say(`\nThe demo went wrong: ${error instanceof Error ? error.message : error}`)
    return error === interruption ? 130 : 1
  } finally {
    await launched?.stop()
    rmSync(directory, { recursive: true, force: true })
  }
}

async function tell(launched: Launched): Promise<void> {
  const { sandbox } = launched
  if (!sandbox) throw new Error('the demo needs the sandbox')
  const callsFor = (email: string) => sandbox.ledger.filter((call) => call.message?.to === email).length

  title('1. One payment, posted three times')
  const ada = payment(launched, 'ada@example.com')
  for (const expected of ['accepted', 'duplicate', 'duplicate']) {
    const answer = await ada.post()
    step(`the provider posts ${ada.id} → ${answer}`)
    check(answer === expected, `expected ${expected}`)
  }
  await ada.until('delivered')
  step(`the email API was called ${times(callsFor('ada@example.com'))}, and its report says: delivered`)
  check(callsFor('ada@example.com') === 1, 'expected one call')

  title('2. "Delivered" arrives before the send is recorded')
  sandbox.armReports({ kind: 'before_answer' }, { to: 'bea@example.com' })
  const bea = payment(launched, 'bea@example.com')
  await bea.post()
  await bea.until('delivered')
  step('the report came while the call was still open; it was kept, and joined once the answer was recorded: delivered')
  check(callsFor('bea@example.com') === 1, 'expected one call')

  title('3. The answer of the email API is lost')
  sandbox.arm({ kind: 'cut_after_accept' }, { to: 'cy@example.com' })
  sandbox.armReports({ kind: 'never' }, { to: 'cy@example.com' })
  const cy = payment(launched, 'cy@example.com')
  await cy.post()
  const unknown = await cy.until('needs_review')
  step(`the connection broke after the request → needs_review (${unknown.last_error})`)
  await cy.post()
  await cy.replay()
  await cy.until('needs_review')
  step(`the event is redelivered, and replayed by a person → still needs_review, calls so far: ${callsFor('cy@example.com')}`)
  check(callsFor('cy@example.com') === 1, 'expected no second call')

  title('4. The email API refuses')
  sandbox.arm(
    { kind: 'status', status: 422, code: 'sender_not_verified', message: 'verify your sender first' },
    { to: 'di@example.com' },
  )
  const di = payment(launched, 'di@example.com')
  await di.post()
  const refused = await di.until('rejected')
  step(`${refused.last_error} → rejected: surely not sent, so the key is free`)
  await di.replay()
  await di.until('delivered')
  step(`the sender is verified now; the event is replayed → delivered, calls in all: ${callsFor('di@example.com')}`)
  check(
    sandbox.ledger.filter((call) => call.message?.to === 'di@example.com' && call.accepted).length === 1,
    'expected one email',
  )
}

interface SendView {
  dedupe_key: string
  status: string
  last_error: string | null
}

/** One customer's payment: one event that can be posted, redelivered and replayed, and the send that it causes. */
function payment({ url, config, operatorToken }: Launched, email: string) {
  const source = config.sources.get('stripe')
  const id = `evt_demo_${email.split('@', 1)[0]}`
  const api = async (path: string, method = 'GET'): Promise<Record<string, unknown>> => {
    const response = await fetch(`${url}${path}`, { method, headers: { authorization: `Bearer ${operatorToken}` } })
    if (!response.ok) throw new Error(`${method} ${path} → ${response.status}`)
    return (await response.json()) as Record<string, unknown>
  }
  return {
    id,
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
      const { events } = (await api(`/v1/events?source=stripe&event_id=${id}`)) as { events: { id: string }[] }
      await api(`/v1/events/${events[0]?.id}/replay`, 'POST')
      await until(
        async () => ((await api(`/v1/events/${events[0]?.id}`)) as { status: string }).status === 'processed',
        'the replay is processed',
      )
    },
    async until(status: string): Promise<SendView> {
      let send: SendView | undefined
      await until(async () => {
        const { sends } = (await api(`/v1/sends?recipient=${encodeURIComponent(email)}`)) as { sends: SendView[] }
        send = sends[0]
        return send?.status === status
      }, `the send to ${email} is ${status}`)
      return send as unknown as SendView
    },
  }
}

async function until(isSo: () => Promise<boolean>, what: string): Promise<void> {
  for (const end = Date.now() + LONGEST_WAIT_MS; !(await isSo()); await sleep(50)) {
    if (Date.now() > end) throw new Error(`waited in vain until ${what}`)
  }
}

function title(text: string): void {
  say(`\n${text}`)
}
function step(text: string): void {
  say(`   ${text}`)
}
const times = (count: number) => (count === 1 ? 'once' : `${count} times`)
function check(holds: boolean, expectation: string): void {
  if (!holds) throw new Error(expectation)
}
function say(text: string): void {
  process.stdout.write(`${text}\n`)
}
