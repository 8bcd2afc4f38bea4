import type { ProviderCall } from '../providers/provider.ts'

export type Fetch = (url: string, init: RequestInit) => Promise<Response>

/** What a provider answered; `text` is missing where it was too long. */
export interface ProviderAnswer {
  status: number
  text?: string
}

const ANSWERS_WITHIN_MS = 3_000
const LONGEST_ANSWER = 64 * 1024

/** Calls a provider, once and without following redirects; undefined when no whole answer came in time. */
export async function callProvider(fetch: Fetch, { url, headers = {}, body }: ProviderCall): Promise<ProviderAnswer | undefined> {
  try {
    const response = await fetch(url, {
      headers: { accept: 'application/json, */*', ...headers },
      redirect: 'manual',
      // For the whole of it: a body that trickles must not hold up the webhook that waits for it.
      signal: AbortSignal.timeout(ANSWERS_WITHIN_MS),
      ...(body !== undefined && { method: 'POST', body: new Uint8Array(Buffer.from(body as string)) }),
    })
    const text = await readText(response)
    return { status: response.status, ...(text !== undefined && { text }) }
  } catch {
    return undefined
  }
}

async function readText(response: Response): Promise<string | undefined> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length
    // Leaving the loop ends the transfer.
    if (bytes > LONGEST_ANSWER) return undefined
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}
