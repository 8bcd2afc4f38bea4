import { readdirSync, readFileSync } from 'node:fs'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type Config, type EventMeta, type FollowUpEmail, type FollowUpRule, loadConfig, type Source } from '../src/config.ts'
import { payloadOf, readEvents } from '../src/providers/read-events.ts'
import { verify } from '../src/providers/signature.ts'
import { sampleRequest } from '../src/sandbox/samples.ts'
import { messageSchema } from '../src/sends/message.ts'
import { requestOf, setups } from './support/provider-setups.ts'

const NOW = 1_790_000_000
const email = 'grace@example.com'
const names = readdirSync('examples')
  .flatMap((file) => (file.endsWith('.ts') ? [file.replace('.ts', '')] : []))
  .sort()
const byProvider = new Map(
  setups.filter(({ title, definition }) => title === definition.name).map((setup) => [setup.definition.name, setup]),
)

/** What the provider's API answers to `confirm`; `rule` is the name of the rule that it is for. */
const answers: Record<string, (event: never, rule: string) => unknown> = {
  'authorize-net': () => ({ transaction: { customer: { email } } }),
  chargebee: (event: object) => ({ event }),
  mercadopago: ({ data }: { data: { id: string } }, rule) => ({
    id: Number(data.id),
    status: { receipt: 'approved', 'payment failed': 'rejected', refund: 'refunded' }[rule],
    payer: { email },
  }),
  mollie: ({ id }: { id: string }, rule) => ({
    id,
    status: rule === 'classic receipt' ? 'paid' : 'failed',
    metadata: { email },
  }),
  xendit: ({ event }: { event: string }) => ({
    status: event.includes('fail') ? 'FAILED' : event.endsWith('inactivated') ? 'INACTIVE' : 'SUCCEEDED',
    metadata: { email },
  }),
}

afterEach(() => {
  vi.unstubAllEnvs()
  vi.unstubAllGlobals()
})

async function load(name: string): Promise<Config> {
  const path = `examples/${name}.ts`
  for (const [, variable = ''] of readFileSync(path, 'utf8').matchAll(/env\.list\('([A-Z_]+)'\)/g))
    vi.stubEnv(variable, variable.startsWith('INBOXILI') ? 'inbx_test' : (byProvider.get(name)?.secret ?? ''))
  for (const [, variable = ''] of readFileSync(path, 'utf8').matchAll(/env\.required\('([A-Z_]+)'\)/g))
    vi.stubEnv(variable, 'acme')
  return loadConfig(path)
}

/** A sample, received as the service would receive it. */
function receive({ provider, options, secrets, toleranceSeconds }: Source, type: string, id: string) {
  const { privateKeys, keyring } = byProvider.get(provider.name) ?? expect.unreachable()
  const secret = secrets[0] ?? ''
  const request = requestOf(
    sampleRequest({ provider: provider.name, options, secret, privateKeys, type, id, email, nowSeconds: NOW }),
  )
  expect(verify(provider.scheme, request, secrets, NOW, toleranceSeconds, keyring)).toMatchObject({ ok: true })
  const [event] = readEvents(provider, request).events
  expect(event).toMatchObject({ type })
  const eventId = event?.id ?? ''
  return { eventId, payload: payloadOf(provider, request, eventId) }
}

const meta = {} as EventMeta // no example looks at it

async function emailsOf(source: Source, rule: FollowUpRule, type: string, id: string) {
  const { eventId, payload } = receive(source, type, id)
  vi.stubGlobal('fetch', async () => Response.json(answers[source.provider.name]?.(payload as never, rule.name)))
  const confirmed = source.confirm ? await source.confirm(payload, meta) : payload
  const emails = [(await rule.email(confirmed, meta)) || []].flat() as FollowUpEmail[] // checked below
  return { emails, eventId }
}

test('there is an example for each provider that reports payments, and for no other', () => {
  const paying = [...byProvider.values()].filter(({ definition }) => definition.sample.types.paid).map((it) => it.definition.name)

  expect(names).toEqual(paying)
})

describe.each(names)('examples/%s.ts', (name) => {
  test('it can be used as it is, and has a rule for each payment event', async () => {
    const config = await load(name)
    const types = new Set(config.rules.flatMap((rule) => [...rule.types]))

    expect(config.warnings).toEqual([])
    expect([...types]).toEqual(expect.arrayContaining(Object.values(byProvider.get(name)?.definition.sample.types ?? {})))
  })

  test('each rule makes one email of a sample, whose key names the object and not the event', async () => {
    const { rules, sources } = await load(name)
    const newId = byProvider.get(name)?.definition.sample.newId ?? String
    const [id, other] = [
      newId('0123456789abcdef01234567', '0f8fad5b-d9cb-469f-a165-70867728950e'),
      newId('fedcba9876543210fedcba98', '7c9e6679-7425-40de-944b-e07fc1f90ae7'),
    ] as const

    for (const rule of rules) {
      const source = sources.get(rule.source) ?? expect.unreachable()
      for (const type of rule.types) {
        const first = await emailsOf(source, rule, type, id)
        const again = await emailsOf(source, rule, type, id)
        const another = await emailsOf(source, rule, type, other)
        const to = rule.name === 'payout' || name === 'wise' ? 'accounting@example.com' : email
        const { key = '', policy: _policy, ...message } = first.emails[0] ?? {}

        expect(first.emails, `${rule.name}: ${type}`).toEqual([
          expect.objectContaining({ to, key: expect.stringMatching(/./), subject: expect.stringMatching(/./) }),
        ])
        expect(messageSchema.safeParse(message)).toMatchObject({ success: true })
        expect(again.emails.map((it) => it.key)).toEqual([key])
        expect(another.emails.map((it) => it.key)).not.toEqual([key])
        expect(key.split(':')).not.toContain(first.eventId)
      }
    }
  })
})

test.each([
  ['chargebee', 'chargebee', 'payment_succeeded', 'https://acme.chargebee.com/api/v2/events/ev_0123456789abcdef01234567'],
  ['mercadopago', 'mercadopago', 'payment.updated', 'https://api.mercadopago.com/v1/payments/9100305419896'],
  ['mollie', 'mollie_classic', 'classic', 'https://api.mollie.com/v2/payments/tr_0123456789abcdef01234567'],
  ['xendit', 'xendit', 'payment.succeeded', 'https://api.xendit.co/v3/payments/py-0f8fad5b-d9cb-469f-a165-70867728950e'],
])('examples/%s.ts asks the provider, ignores what it does not know and repeats what it can not tell', async (name, ...rest) => {
  const [source, type, url] = rest
  const { confirm, ...others } = (await load(name)).sources.get(source) ?? expect.unreachable()
  const newId = byProvider.get(name)?.definition.sample.newId ?? String
  const { payload } = receive(
    { confirm, ...others },
    type,
    newId('0123456789abcdef01234567', '0f8fad5b-d9cb-469f-a165-70867728950e'),
  )
  const fetched: string[] = []
  const answering = (status: number) =>
    vi.stubGlobal('fetch', async (asked: string) => {
      fetched.push(asked)
      return new Response('{}', { status })
    })

  answering(404)
  expect(await confirm?.(payload, meta)).toBeUndefined()
  answering(500)
  await expect(confirm?.(payload, meta)).rejects.toThrow('500')
  expect(fetched).toEqual([url, url])
})

test('examples/chargebee.ts ignores a genuine event that comes under another type', async () => {
  const source = (await load('chargebee')).sources.get('chargebee') ?? expect.unreachable()
  const { payload } = receive(source, 'payment_refunded', 'ev_1')
  vi.stubGlobal('fetch', async () => Response.json({ event: { id: 'ev_1', event_type: 'payment_succeeded' } }))

  expect(await source.confirm?.(payload, meta)).toBeUndefined()
})
