import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { afterAll, expect, test, vi } from 'vitest'
import { triggerCommand } from '../src/cli/trigger.ts'
import { readConfig, type Source } from '../src/config.ts'
import { readEvents } from '../src/providers/read-events.ts'
import { verify } from '../src/providers/signature.ts'
import { setups } from './support/provider-setups.ts'

/** The service's place: it keeps what is posted, and answers as it is told. */
const posted: { path: string; headers: IncomingMessage['headersDistinct']; body: Buffer }[] = []
let answer: [status: number, text: string] = [200, '{"status":"accepted"}']
const server = createServer((req, res) => {
  void buffer(req).then((body) => {
    posted.push({ path: req.url ?? '', headers: req.headersDistinct, body })
    res.writeHead(answer[0]).end(answer[1])
  })
})
await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
afterAll(() => server.close())
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}` // a listening TCP server has one

const folder = mkdtempSync(join(tmpdir(), 'oncehook-'))
afterAll(() => rmSync(folder, { recursive: true }))
const testKeysPath = join(folder, 'test-keys.json')
writeFileSync(testKeysPath, JSON.stringify(setups[0]?.privateKeys))

function sourceOf({ definition, options, secret, provider }: (typeof setups)[number]): Source {
  const secrets = provider.secrets === 'none' ? [] : [secret]
  const { sources } = readConfig({
    sources: {
      here: { provider: definition.name, ...options, secrets, ...(provider.requiresConfirm && { confirm: () => ({}) }) },
    },
  })
  return sources.get('here') ?? expect.unreachable()
}

test.each(setups)('what trigger posts as $title is accepted by it', async (setup) => {
  const { provider, definition, secret, keyring } = setup
  const type = definition.sample.types.paid ?? 'delivered'
  answer = [200, '{"status":"accepted"}']

  const { stdout, exitCode } = await triggerCommand(sourceOf(setup), { url, type, testKeysPath })

  expect([stdout, exitCode]).toEqual(['200 {"status":"accepted"}\n', 0])
  const { path, headers, body } = posted.pop() ?? expect.unreachable()
  const [address, query = ''] = path.split('?')
  const request = { headers, body, query }
  expect(address).toBe('/webhooks/here')
  expect(verify(provider.scheme, request, [secret], Date.now() / 1000, provider.toleranceSeconds, keyring)).toMatchObject({
    ok: true,
  })
  expect(readEvents(provider, request).events).toHaveLength(1)
})

const stripe = sourceOf(setups.find(({ title }) => title === 'stripe') ?? expect.unreachable())

test('trigger without a type lists the known ones, and posts nothing', async () => {
  const { stdout, exitCode } = await triggerCommand(stripe, { url })

  expect(stdout.split('\n')).toEqual([
    'The payment events of here; another type gives a sample in the same form.',
    '  invoice.paid                   paid',
    '  invoice.payment_failed         failed',
    '  charge.refunded                refunded',
    '  customer.subscription.deleted  subscription ended',
    '  payout.paid                    payout',
    '',
  ])
  expect(exitCode).toBe(0)
  expect(posted).toEqual([])
})

test('trigger says what the answer was, and of a refusal what may be the cause', async () => {
  answer = [200, '[accepted]']
  const taken = await triggerCommand(stripe, { url, type: 'invoice.paid' })
  answer = [401, '']
  const refused = await triggerCommand(stripe, { url, type: 'invoice.paid', count: 2 })
  answer = [503, '']
  const away = await triggerCommand(stripe, { url, type: 'invoice.paid' })

  expect(taken).toEqual({ stdout: '200 [accepted]\n', stderr: '', exitCode: 0 })
  expect(refused).toMatchObject({ stdout: '401\n401\n', exitCode: 1 })
  expect(refused.stderr).toContain('other secrets')
  expect(away).toEqual({ stdout: '503\n', stderr: '', exitCode: 1 })
})

test('trigger with the same ID posts the same bytes, and with another one of that object says so', async () => {
  answer = [200, '']
  const clock = vi.spyOn(Date, 'now')
  try {
    clock.mockReturnValue(Date.UTC(2026, 10, 29, 14))
    await triggerCommand(stripe, { url, type: 'invoice.paid', id: 'evt_1' })
    clock.mockReturnValue(Date.UTC(2026, 10, 30, 9))
    await triggerCommand(stripe, { url, type: 'invoice.paid', id: 'evt_1' })
    await triggerCommand(stripe, { url, type: 'invoice.payment_succeeded', about: 'evt_1' })
  } finally {
    clock.mockRestore()
  }

  const [first, again, other] = posted.splice(-3).map(({ headers, body }) => ({ signature: headers['stripe-signature'], body }))
  expect(again?.body).toEqual(first?.body)
  expect(again?.signature).not.toEqual(first?.signature)
  expect(JSON.parse(String(other?.body))).toMatchObject({
    id: expect.not.stringMatching(/^evt_1$/),
    data: { object: { id: 'in_1' } },
  })
  const shop = sourceOf(setups.find(({ title }) => title.startsWith('shopify')) ?? expect.unreachable())
  expect(await triggerCommand(shop, { url, type: 'orders/paid', about: 'x' })).toMatchObject({ exitCode: 2 })
})
