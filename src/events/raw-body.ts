import type { IncomingMessage } from 'node:http'
import { type Readable, Transform } from 'node:stream'
import zlib from 'node:zlib'

/** A body that can't be taken, with the status to answer. `aborted`: the client is gone, nobody reads an answer. */
export class BadBody extends Error {
  override name = 'BadBody'
  readonly status: 400 | 413 | 415
  readonly code: string
  readonly aborted: boolean

  constructor(status: 400 | 413 | 415, code: string, message: string, aborted = false) {
    super(message)
    this.status = status
    this.code = code
    this.aborted = aborted
  }
}

// A map, as a header can't reach a prototype in one.
const inflaters = new Map<string, () => Transform>([
  ['gzip', () => zlib.createGunzip()],
  ['x-gzip', () => zlib.createGunzip()],
  ['deflate', () => zlib.createInflate()],
  ['br', () => zlib.createBrotliDecompress()],
])

/** Inflated bytes for each compressed one, above which a body is a bomb; small bodies may compress as well as they like. */
const MOST_RATIO = 100
const RATIO_COUNTS_FROM = 64 * 1024

/** The bytes of a body after content decoding. Rejects with BadBody: over the limit, broken, or in an unknown encoding. */
export async function readRawBody(req: IncomingMessage, limit: number): Promise<Buffer> {
  const encoding = (req.headers['content-encoding'] ?? 'identity').trim().toLowerCase()
  let plain: Readable | undefined
  try {
    if (encoding === '' || encoding === 'identity') {
      return await readAll(req, limit, Number(req.headers['content-length'] ?? Number.NaN))
    }
    const inflate = inflaters.get(encoding)?.()
    if (!inflate) throw new BadBody(415, 'unsupported_encoding', 'Content-Encoding must be gzip, deflate, br or identity')
    plain = inflated(req, inflate)
    return await readAll(plain, limit)
  } catch (error) {
    req.unpipe()
    req.resume()
    throw toBadBody(error, req)
  } finally {
    // What stopped at the limit would keep its inflater until the garbage is collected.
    plain?.destroy()
  }
}

/** The bytes of a stream, which are not copied where they come in one piece, as most bodies do. */
function readAll(stream: Readable, limit: number, announced = Number.NaN): Promise<Buffer> {
  return new Promise((done, fail) => {
    if (announced > limit) throw tooLarge()
    const chunks: Buffer[] = []
    let length = 0
    const stop = (end: () => void) => {
      // Errors are still listened to: one that comes after the end, without a listener, would end the process.
      stream.off('data', onData).off('end', onEnd).off('close', onClose)
      end()
    }
    const onData = (chunk: Buffer) => {
      length += chunk.length
      if (length > limit) stop(() => fail(tooLarge()))
      else chunks.push(chunk)
    }
    const onEnd = () => {
      const [first = Buffer.alloc(0)] = chunks
      stop(() => done(chunks.length > 1 ? Buffer.concat(chunks, length) : first))
    }
    const onError = (error: Error) => stop(() => fail(error))
    const onClose = () => stop(() => fail(new BadBody(400, 'aborted', 'the client went away', true)))
    stream.on('data', onData).on('end', onEnd).on('error', onError).on('close', onClose)
  })
}

const tooLarge = () => new BadBody(413, 'body_too_large', 'the body is larger than this source takes')

function inflated(req: IncomingMessage, inflate: Transform): Readable {
  let received = 0
  let produced = 0
  req.on('data', (chunk: Buffer) => {
    received += chunk.length
  })
  const bounded = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      produced += chunk.length
      const isBomb = produced > RATIO_COUNTS_FROM && produced > received * MOST_RATIO
      done(
        isBomb ? new BadBody(413, 'body_too_large', `the body inflates to more than ${MOST_RATIO} times its size`) : null,
        chunk,
      )
    },
  })
  const fail = (error: Error) => bounded.destroy(error)
  req.once('error', fail)
  req.once('aborted', () => fail(new BadBody(400, 'aborted', 'the client went away', true)))
  inflate.once('error', (error) => fail(new BadBody(400, 'broken_compression', error.message)))
  req.pipe(inflate).pipe(bounded)
  bounded.once('close', () => {
    req.unpipe(inflate)
    inflate.destroy()
  })
  return bounded
}

function toBadBody(error: unknown, req: IncomingMessage): unknown {
  // A request that was read to its end is destroyed too.
  return error instanceof BadBody || req.complete ? error : new BadBody(400, 'aborted', 'the client went away', true)
}

/** What a body may come to before it is read: as long as it says, as far as it may inflate, or as much as the source takes. */
export function mostBytesOf(req: IncomingMessage, limit: number): number {
  const length = Number(req.headers['content-length'] ?? Number.NaN)
  const isPlain = /^(identity)?$/i.test(req.headers['content-encoding']?.trim() ?? '')
  return Number.isNaN(length) ? limit : Math.min(isPlain ? length : Math.max(length * MOST_RATIO, RATIO_COUNTS_FROM), limit)
}
