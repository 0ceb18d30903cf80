// The devices' memory.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>

namespace tandem::emulation {

// 256-byte aligned, filled with 0xFF, its end close to a guard. Closed to the host unless a MemoryAccess
// lives. null: the device has not that much left.
void* allocate(int device, std::size_t bytes);
// False: no such allocation.
bool release(void* pointer);
std::size_t bytes_in_use(int device);
// A violation where the bytes around an allocation have been written to.
void check_surroundings(const std::string& writer);

// Held while a kernel or copy runs.
std::mutex& device_lock();

}  // namespace tandem::emulation
