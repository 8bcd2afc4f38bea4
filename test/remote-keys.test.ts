import { createPublicKey, generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { readConfig } from '../src/config.ts'
import type { Fetch } from '../src/events/provider-calls.ts'
import { createRemoteKeys } from '../src/events/remote-keys.ts'

const NOW = 1_800_000_000
const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const jwk = { ...publicKey.export({ format: 'jwk' }), alg: 'ES256', kid: 'key-1' }
const answer = (value: object = { key: jwk }, status = 200) => new Response(JSON.stringify(value), { status })
const unknown = () => answer({ error_code: 'INVALID_WEBHOOK_VERIFICATION_KEY_ID' }, 400)
const request = { headers: {}, body: Buffer.from('') }

const clock = { seconds: NOW }
const log = { info: vi.fn(), warn: vi.fn() }
beforeEach(() => {
  clock.seconds = NOW
  log.info.mockClear()
  log.warn.mockClear()
})

/** A source whose keys are fetched, and what is fetched for it. */
function fetching(respond: (call: { url: string; body: string }) => Response | Promise<Response>, options: object = {}) {
  const calls: { url: string; body: string }[] = []
  const fetch: Fetch = async (url, init) => {
    const call = { url, body: init.body ? Buffer.from(init.body as Uint8Array).toString() : '' }
    calls.push(call)
    return respond(call)
  }
  const store = createRemoteKeys({ log, fetch, now: () => clock.seconds * 1000 })
  const source = sourceOf(options)
  /** What a request finds whose signature names this key. */
  const find = async (name: string, of = source) => {
    const known = store.ring(of)(name, clock.seconds)
    return known ?? (await store.fetch(of, name, request))(name, clock.seconds)
  }
  return { calls, find, store, source }
}

function sourceOf(options: object) {
  const config = readConfig({ sources: { bank: { provider: 'plaid', secrets: ['client:s3cret'], ...options } } })
  const source = config.sources.get('bank')
  if (!source) throw new Error('no source')
  return source
}

/** A source whose keys are fetched from a real HTTP server. */
async function served(respond: (req: IncomingMessage, res: ServerResponse) => void) {
  const server = createServer(respond).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const store = createRemoteKeys({ log, now: () => clock.seconds * 1000 })
  const source = sourceOf({ jwksUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/keys` })
  return async (name: string) => (await store.fetch(source, name, request))(name, clock.seconds)
}

test('a key is asked for once, with the secret of the source, and then kept', async () => {
  const { calls, find } = fetching(() => answer())

  const [first, second] = [await find('key-1'), await find('key-1')]

  expect(first).toEqual(createPublicKey({ key: jwk, format: 'jwk' }))
  expect(second).toBe(first)
  expect(calls).toEqual([
    {
      url: 'https://production.plaid.com/webhook_verification_key/get',
      body: '{"client_id":"client","secret":"s3cret","key_id":"key-1"}',
    },
  ])
})

test('fifty requests at once cause one fetch', async () => {
  const { calls, find } = fetching(() => answer())

  const found = await Promise.all(Array.from({ length: 50 }, () => find('key-1')))

  expect(calls).toHaveLength(1)
  expect(found.every((key) => typeof key === 'object')).toBe(true)
})

test('a key is fetched anew after a day, and never used past its own end', async () => {
  const { calls, find, store, source } = fetching(() => answer({ key: { ...jwk, expired_at: NOW + 100_000 } }))
  await find('key-1')

  expect(store.ring(source)('key-1', NOW + 86_400)).toBeTypeOf('object')
  expect(store.ring(source)('key-1', NOW + 86_401)).toBeUndefined()

  clock.seconds = NOW + 86_401
  await find('key-1')
  expect(calls).toHaveLength(2)
  expect(store.ring(source)('key-1', NOW + 100_000)).toBeTypeOf('object')
  expect(store.ring(source)('key-1', NOW + 100_001)).toBeUndefined()
})

test('a key that the provider surely has not is unknown for a minute, without being asked for again', async () => {
  const { calls, find } = fetching(unknown)

  expect(await find('made-up')).toBe('unknown')
  clock.seconds += 59
  expect(await find('made-up')).toBe('unknown')
  expect(calls).toHaveLength(1)
  clock.seconds += 1
  await find('made-up')
  expect(calls).toHaveLength(2)
})

test.each([
  ['wrong credentials', () => answer({ error_code: 'INVALID_API_KEYS' }, 400)],
  ['too many requests', () => answer({}, 429)],
  ['an error of the provider', () => answer({}, 500)],
  ['a redirect', () => new Response('', { status: 302, headers: { location: 'https://attacker.example/' } })],
  ['a connection that failed', () => Promise.reject(new TypeError('fetch failed'))],
])('after %s a key is still missing, and the next request asks again', async (_what, respond) => {
  const { calls, find } = fetching(respond)

  expect(await find('key-1')).toBeUndefined()
  expect(await find('key-1')).toBeUndefined()
  expect(calls).toHaveLength(2)
})

test.each([
  ['no JSON', () => new Response('<html>')],
  ['a key under another name', () => answer({ key: { ...jwk, kid: 'key-2' } })],
  [
    'a key of another curve',
    () =>
      answer({
        key: { ...generateKeyPairSync('ec', { namedCurve: 'P-384' }).publicKey.export({ format: 'jwk' }), kid: 'key-1' },
      }),
  ],
  ['a key that may only be used with another algorithm', () => answer({ key: { ...jwk, alg: 'ES384' } })],
  ['an answer that is too long', () => answer({ key: jwk, padding: 'x'.repeat(70_000) })],
])(
  '%s is no key and no word of the provider: it stays missing, and is asked for again a minute later',
  async (_what, respond) => {
    const { calls, find } = fetching(respond)

    expect(await find('key-1')).toBeUndefined()
    clock.seconds += 59
    expect(await find('key-1')).toBeUndefined()
    expect(calls).toHaveLength(1)
    clock.seconds += 1
    await find('key-1')
    expect(calls).toHaveLength(2)
  },
)

test('made-up names cause thirty fetches a minute, and are no more kept than that; a key that is known is not held up', async () => {
  const { calls, find } = fetching(({ body }) => (body.includes('"key-1"') ? answer() : unknown()))
  await find('key-1')
  for (let name = 0; name < 200; name++) await find(`made-up-${name}`)

  expect(calls).toHaveLength(30)
  expect(await find('one-more')).toBeUndefined()
  expect(await find('key-1')).toBeTypeOf('object')

  clock.seconds += 4
  expect(await find('two-more')).toBe('unknown')
  expect(await find('three-more')).toBe('unknown')
  expect(await find('four-more')).toBeUndefined()
})

test('a key that was known is fetched anew although made-up names have used up what may be asked', async () => {
  const { find } = fetching(({ body }) => (body.includes('"key-1"') ? answer() : unknown()))
  await find('key-1')
  clock.seconds = NOW + 86_401
  for (let name = 0; name < 100; name++) await find(`made-up-${name}`)

  expect(await find('key-1')).toBeTypeOf('object')
})

test('a clock that is set back holds nothing up', async () => {
  const { calls, find } = fetching(unknown)
  await find('a')
  clock.seconds -= 3_600

  expect(await find('b')).toBe('unknown')
  expect(calls).toHaveLength(2)
})

test('four fetches run at once, and more wait for the next delivery', async () => {
  const gate = Promise.withResolvers<void>()
  const { calls, find } = fetching(async () => {
    await gate.promise
    return unknown()
  })
  const first = ['a', 'b', 'c', 'd'].map((name) => find(name))

  expect(await find('e')).toBeUndefined()
  gate.resolve()

  expect(await Promise.all(first)).toEqual(['unknown', 'unknown', 'unknown', 'unknown'])
  expect(calls).toHaveLength(4)
  expect(await find('e')).toBe('unknown')
})

test('a source that is configured anew starts without keys', async () => {
  const { calls, find } = fetching(() => answer())
  await find('key-1')

  await find('key-1', sourceOf({ environment: 'sandbox' }))

  expect(calls.map(({ url }) => url)).toEqual([
    'https://production.plaid.com/webhook_verification_key/get',
    'https://sandbox.plaid.com/webhook_verification_key/get',
  ])
})

test('a source without any way to fetch knows its own keys and no other', () => {
  const { store } = fetching(() => answer())
  const source = sourceOf({ secrets: [], jwks: { keys: [{ ...jwk, expired_at: NOW }] } })

  expect(store.ring(source)('key-1', NOW)).toBeTypeOf('object')
  expect(store.ring(source)('key-1', NOW + 1)).toBe('unknown')
  expect(store.ring(source)('key-2', NOW)).toBe('unknown')
})

test('neither names nor secrets nor answers reach the log', async () => {
  const { find } = fetching(({ body }) => (body.includes('"key-1"') ? answer() : unknown()))
  await find('key-1')
  await find('made-up')

  expect(log.info.mock.calls).toEqual([[{ source: 'bank', status: 200 }, 'key fetched from the provider']])
  expect(log.warn.mock.calls).toEqual([
    [{ source: 'bank', status: 400 }, 'the provider has no key that could be trusted under this name'],
  ])
})

test('over HTTP a key set is read, and a 404 says that there is none', async () => {
  let status = 200
  const find = await served((_req, res) => res.writeHead(status).end(JSON.stringify({ keys: [jwk] })))

  expect(await find('key-1')).toBeTypeOf('object')
  status = 404
  expect(await find('key-2')).toBe('unknown')
})

test('over HTTP a redirect is not followed', async () => {
  const paths: string[] = []
  const find = await served((req, res) => {
    paths.push(req.url ?? '')
    res.writeHead(302, { location: '/elsewhere' }).end()
  })

  expect(await find('key-1')).toBeUndefined()
  expect(paths).toEqual(['/keys'])
})

test('over HTTP an endless answer is left', async () => {
  const closed = Promise.withResolvers<void>()
  const find = await served((_req, res) => {
    res.once('close', () => closed.resolve())
    const write = () => {
      while (res.write('x'.repeat(10_000)));
      res.once('drain', write)
    }
    write()
  })

  expect(await find('key-1')).toBeUndefined()
  await closed.promise
})

test('over HTTP an answer that trickles is left after three seconds', async () => {
  const find = await served((_req, res) => {
    res.write('{')
    const timer = setInterval(() => res.write(' '), 100)
    res.once('close', () => clearInterval(timer))
  })
  const started = performance.now()

  expect(await find('key-1')).toBeUndefined()
  expect(performance.now() - started).toBeGreaterThan(2_900)
  expect(performance.now() - started).toBeLessThan(10_000)
})
