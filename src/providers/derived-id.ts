/** An ID put together from what names the event, joined by colons; undefined when a part is missing or no text or integer. */
export function derivedId(...parts: readonly unknown[]): string | undefined {
  const isPart = (part: unknown) => (typeof part === 'string' ? part.trim() !== '' : Number.isSafeInteger(part))
  return parts.every(isPart) ? parts.join(':') : undefined
}
