/* interop_d3d11.c - finds the GPU that a Direct3D device draws on. Windows only. */
#define COBJMACROS
#include <d3d11.h>
#include <dxgi.h>

#include "interop.h"

/* The GUID of IDXGIDevice. Defined here to avoid linking a library for it. */
static const GUID dxgi_device = {0x54ec77fa, 0x1377, 0x44e6, {0x8c, 0x32, 0x88, 0xfd, 0x5f, 0x44, 0xc8, 0x4c}};

void *interop_adapter(void *d3d11) {
    void *found = NULL;
    IDXGIAdapter *adapter = NULL;
    if (SUCCEEDED(ID3D11Device_QueryInterface((ID3D11Device *)d3d11, &dxgi_device, &found))) {
        if (FAILED(IDXGIDevice_GetAdapter((IDXGIDevice *)found, &adapter))) {
            adapter = NULL;
        }
        IDXGIDevice_Release((IDXGIDevice *)found);
    }
    return adapter;
}

void interop_adapter_release(void *adapter) {
    if (adapter != NULL) {
        IDXGIAdapter_Release((IDXGIAdapter *)adapter);
    }
}
